"""One call of `run.openai`, from its input to its result. A replay begins it at the start, with the recorded answers of its models; tools
that need approval are questions to people."""

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import Any

from agents.exceptions import Permanent
from agents.frameworks.body import on_a_loop
from agents.guards.openai_agents import calling
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.engine import Journal
from agents.journal.protocol import Place, fitting
from agents.kernel.redaction import refresh
from agents.llm.context import LlmContext
from agents.llm.door.danger import TAINTED
from agents.openai.messages import asked_for
from agents.openai.refusals import require_no_session
from agents.openai.requests import Requests
from agents.openai.sdk import sdk

LONGEST_KEY = 80
OPENED = "llm"  # the kind of its first entry: what stands below it is a conversation
# Options of `Runner.run` for the input, which an agent that goes on has already.
OF_INPUT = frozenset({"context", "previous_response_id", "conversation_id", "auto_previous_response_id"})


class OpenAICall:
    def __init__(
        self, steps: ConcurrentSteps, context: LlmContext, agent: Any, *, key: str, trusted_tools: Iterable[str]
    ) -> None:
        if not isinstance(agent, sdk().Agent):
            raise Permanent(f"run.openai takes an agent of openai-agents, not {type(agent).__name__}")
        if len(key) > LONGEST_KEY:
            raise Permanent(f"run.openai: the key has {len(key)} characters; use at most {LONGEST_KEY}")
        self._steps = steps
        self._journal = steps.journal
        self._context = context
        self._agent = agent
        self._trusted = frozenset(trusted_tools)
        self._name = Place(name="openai", key=key, is_numbered=not key)

    async def run(self, input: Any, options: dict[str, Any]) -> Any:
        require_no_session(options)
        await in_main_thread(refresh)
        place = await self._open(input)
        requests = Requests(place, self._steps, self._context, self._trusted)
        token = calling.set(requests)
        try:
            return await self._to_the_end(requests, place, input, options)
        finally:
            calling.reset(token)

    async def _open(self, input: Any) -> str:
        """The key of this call."""
        opening = {"model": "", "prompt": input if isinstance(input, str) else None, "untrusted": False, "mark": ""}
        place, opened = await in_main_thread(self._journal.named_value, self._name, lambda: opening, kind=OPENED)
        if opened is None:
            raise Permanent(f"the content of {place!r} has been erased from the journal, so it cannot be replayed")
        return place

    async def _to_the_end(self, requests: Requests, place: str, input: Any, options: dict[str, Any]) -> Any:
        try:
            result = await self._result(place, input, options)
        except asyncio.CancelledError:
            raise  # the time of the body is over
        except BaseException:
            await requests.finish()
            if end := self._journal.end or requests.refusal:
                raise end from None  # whatever the SDK has made of it
            raise
        await requests.finish()
        if end := self._journal.end or requests.refusal:
            raise end
        await requests.taint_by_results()
        return result

    async def _result(self, place: str, input: Any, options: dict[str, Any]) -> Any:
        run = sdk().Runner.run
        result = await run(self._agent, input, **options)
        further = {name: value for name, value in options.items() if name not in OF_INPUT}
        while result.interruptions:
            state = result.to_state()
            for call in result.interruptions:
                if answer := await self._ask(place, call):
                    state.approve(call)
                else:
                    state.reject(call, rejection_message=answer.reason or "A person has denied this call.")
            result = await run(self._agent, state, **further)
        return result

    async def _ask(self, place: str, call: Any) -> Any:
        key = fitting(f"{place}: {call.name} {call.call_id or ''}", beside="approval")
        told = "\n\n".join(filter(None, (TAINTED if self._context.is_tainted() else "", asked_for(call))))
        question = f"{call.agent.name} wants to call {call.name}"
        return await in_main_thread(partial(self._context.ask, question, detail=told, key=key))


def run_sync(
    journal: Journal,
    context: LlmContext,
    agent: Any,
    input: Any,
    *,
    key: str,
    trusted_tools: Iterable[str],
    options: dict[str, Any],
) -> Any:
    """`OpenAICall.run` from a plain function, on an event loop of its own."""

    async def run(steps: ConcurrentSteps) -> Any:
        return await OpenAICall(steps, context, agent, key=key, trusted_tools=trusted_tools).run(input, options)

    return on_a_loop(journal, run)
