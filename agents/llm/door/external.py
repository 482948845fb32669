"""External calls, which handlers of deferred calls carry out: they pass the door, and the answer of a handler is a step."""

from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from django.utils.crypto import salted_hmac
from pydantic_ai import RunContext
from pydantic_ai.durable_exec._toolset import guard_run_context
from pydantic_ai.exceptions import CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests

from agents.llm.door.approvals import Approver, said
from agents.llm.door.rules import Rules, ToolCall
from agents.llm.door.tool_steps import ToolSteps
from agents.llm.strangers.fences import fenced_answer
from agents.llm.tools import ToolPolicy

_answering: ContextVar[bool] = ContextVar("answering", default=False)  # do handlers answer a call, within its step?


def is_answering() -> bool:
    return _answering.get()


@dataclass(frozen=True)
class Instead:
    """What the model gets instead of the answer to a call that is not made."""

    answer: Any


class ExternalCalls:
    def __init__(self, rules: Rules, steps: ToolSteps, approver: Approver, mark: str) -> None:
        self._rules = rules
        self._steps = steps
        self._approver = approver
        self._mark = mark

    async def answer(self, ctx: RunContext[Any], requests: DeferredToolRequests, part: ToolCallPart) -> Any:
        """Let the handlers carry out one of the requests. CallDeferred: none of them answers it."""
        call = self._admitted(ctx, part)
        arguments = await self._approved(ctx, call, part.args_as_dict())
        if isinstance(arguments, Instead):
            return arguments.answer
        self._rules.judge_result(call)
        answer = await self._carried_out(ctx, requests, call, replace(part, args=arguments))
        return answer if call.policy.trusted else fenced_answer(answer, self._mark_of(call))

    def _admitted(self, ctx: RunContext[Any], part: ToolCallPart) -> ToolCall:
        tool = ctx.tool_manager.get_tool_def(part.tool_name) if ctx.tool_manager else None
        if tool:
            self._rules.require_allowed_tool(tool)
        policy = ToolPolicy.of_tool(tool) if tool else ToolPolicy()
        return ToolCall(name=part.tool_name, id=part.tool_call_id, policy=policy, tool=tool)

    async def _approved(
        self, ctx: RunContext[Any], call: ToolCall, arguments: dict[str, Any]
    ) -> dict[str, Any] | Instead:
        """The arguments to make the call with; a person may have edited them."""
        if not call.tool or call.tool.kind != "external":  # a tool that defers its call has already passed the door
            return arguments
        why = self._rules.why(call, arguments, ctx)
        if why is None:
            return arguments
        try:
            answer = await self._approver.decide(call.name, call.id, arguments, why, call.policy.expires)
        except ValueError as error:
            return Instead(ModelRetry(f"A person must approve this call, but {error}."))
        if not answer:
            return Instead(said(answer))
        if answer.decision == "edited":
            if isinstance(answer.arguments, dict):
                return answer.arguments
            return Instead(ModelRetry(f"A person wants these arguments instead: {answer.arguments}"))
        if not self._steps.is_made(call.name, call.id):
            self._approver.require_shown(call.name, call.id, answer, arguments)
        return arguments

    async def _carried_out(
        self, ctx: RunContext[Any], requests: DeferredToolRequests, call: ToolCall, part: ToolCallPart
    ) -> Any:
        one = DeferredToolRequests(
            calls=[part], metadata={key: value for key, value in requests.metadata.items() if key == call.id}
        )
        in_step = guard_run_context(ctx, unit_noun="step", container_noun="run")
        try:
            return await self._steps.call(
                call.name, call.id, call.policy, part.args, lambda: _of_handlers(in_step, one)
            )
        except (ModelRetry, ToolFailed) as refusal:
            return refusal

    def _mark_of(self, call: ToolCall) -> str:
        return salted_hmac("agents.llm.fence", f"{self._mark} {call.id}", algorithm="sha256").hexdigest()[:16]


async def _of_handlers(ctx: RunContext[Any], request: DeferredToolRequests) -> Any:
    """The answer of the other handlers to this one call. CallDeferred: none of them answered."""
    token = _answering.set(True)
    try:
        root = ctx.root_capability
        given = await root.handle_deferred_tool_calls(ctx, requests=request) if root is not None else None
    finally:
        _answering.reset(token)
    [call] = request.calls
    if given is None or call.tool_call_id not in given.calls:
        raise CallDeferred
    answer = given.calls[call.tool_call_id]
    if isinstance(answer, ModelRetry | ToolFailed):
        raise answer
    return answer
