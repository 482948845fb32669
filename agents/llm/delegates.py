"""An LLM agent as a tool of another.

    researcher = Agent("openai:gpt-5.2", name="researcher", tools=[web_page])
    clerk = Agent(name="clerk", toolsets=[Delegate(researcher, "Finds out what the documents say of a question.")])

    run.llm(clerk, "Answer the letter.", untrusted=letter)

The call is a nested call of run.llm, with entries of its own in the journal: its requests are metered and its tools are
steps, under the caps, budgets, taint and approvals of the run. Its agent may use the tools that the call it is made from may use.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from pydantic_ai import Agent, RunContext
from pydantic_ai.toolsets import FunctionToolset

from agents.exceptions import Permanent

DELEGATES = "wakeful_delegate"
# The deepest nesting of calls of run.llm: an agent that delegates to itself ends here.
DEEPEST = 3

Delegation = Callable[[Agent[Any, Any], str, RunContext[Any]], Awaitable[Any]]
_delegation: ContextVar[Delegation | None] = ContextVar("delegation", default=None)


class Delegate(FunctionToolset[Any]):
    """One tool, which runs `agent` on a task and returns its output. `name` is the name of the tool (default: the
    agent's). `dangerous` and `requires_approval` are the options of any tool (`agents.llm.tools`); the result is
    fenced.
    """

    def __init__(
        self,
        agent: Agent[Any, Any],
        description: str,
        *,
        name: str = "",
        dangerous: bool = False,
        requires_approval: bool = False,
    ) -> None:
        called = name or agent.name
        if not called:
            raise Permanent("Delegate: give the agent a name, or the tool")
        super().__init__(id=f"delegate-{called}")

        async def delegate(ctx: RunContext[Any], task: str) -> Any:
            hand_over = _delegation.get()
            if hand_over is None:
                raise Permanent(f"tool {ctx.tool_name!r} hands a task to an agent: it works within run.llm")
            return await hand_over(agent, task, ctx)

        self.add_function(
            delegate,
            takes_ctx=True,
            name=called.replace("-", "_").replace(" ", "_"),
            description=description,
            requires_approval=requires_approval,
            metadata={"dangerous": dangerous, "trusted": True, DELEGATES: True},
        )


@contextmanager
def delegating(delegation: Delegation) -> Iterator[None]:
    token = _delegation.set(delegation)
    try:
        yield
    finally:
        _delegation.reset(token)
