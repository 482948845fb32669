"""Tools that ask first: a person approves the exact arguments of a call, edits them or denies it, once."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pydantic_ai import ApprovalRequired, RunContext, ToolDefinition
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from agents.exceptions import Permanent
from agents.guards.storable import storable
from agents.journal.concurrent import in_main_thread
from agents.journal.protocol import Answer, fitting
from agents.llm.tools import ToolPolicy

ANSWER = "answer"  # the argument of a question that a person fills in
NO_ANSWER = "No person has answered in time."
TAINTED = "The run has seen untrusted data, which may have asked for this call."


class Approver:
    """`place` is the key of the call of run.llm, `ask` the run's ask_approval; `is_tainted` says whether the run has seen
    untrusted data, and `was_made` whether the journal has a call already, made when it had not."""

    def __init__(
        self,
        agent: str,
        place: str,
        ask: Callable[..., Answer],
        is_tainted: Callable[[], bool],
        was_asked: Callable[[str], bool],
        was_made: Callable[[ToolCallPart], bool],
    ) -> None:
        self._agent = agent
        self._place = place
        self._ask = ask
        self._is_tainted = is_tainted
        self._was_asked = was_asked
        self._was_made = was_made
        self._asked: set[str] = set()

    def gated(self, tool: ToolDefinition) -> ToolDefinition:
        """The tool as this run may call it: a dangerous one in a tainted run asks first."""
        if tool.kind == "function" and self._is_tainted() and ToolPolicy.of(tool.name, tool.metadata).dangerous:
            return replace(tool, kind="unapproved")
        return tool

    def require_decision(self, call: ToolCallPart) -> None:
        """A call that a person was asked about is bound to the decision, although today's code would not ask."""
        if self._was_asked(self._next_key(call)):
            raise ApprovalRequired

    async def resolve(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """Ask about each call in turn, and wait for the answers without a worker."""
        results = DeferredToolResults()
        for call in requests.approvals:
            results.approvals[call.tool_call_id] = await self._decision(ctx, call)
        for call in requests.calls:
            if requests.kind(call.tool_call_id) == "question":
                results.calls[call.tool_call_id] = await self._reply(ctx, call)
        return results

    async def _decision(self, ctx: RunContext[Any], call: ToolCallPart) -> ToolApproved | ToolDenied:
        key = self._next_key(call)
        self._asked.add(key)
        if self._was_made(call) and not self._was_asked(key):
            return ToolApproved()
        try:
            arguments = storable(call.args_as_dict(), "the arguments of the call")
        except Permanent as error:
            return ToolDenied(
                f"A person is asked before this call, but {error}. Call the tool again with other arguments."
            )
        answer = await in_main_thread(
            self._ask,
            f"{self._agent} wants to call the tool {call.tool_name}",
            arguments=arguments,
            detail=TAINTED if self._is_tainted() else "",
            expires=_policy_of(ctx, call).expires,
            key=key,
        )
        if not answer:
            return ToolDenied(f"{answer.decision}{f': {answer.reason}' if answer.reason else ''}")
        # Edited arguments are validated like the model's own.
        edited = json.loads(json.dumps(answer.arguments))
        return ToolApproved(override_args=edited if answer.decision == "edited" else None)

    async def _reply(self, ctx: RunContext[Any], call: ToolCallPart) -> str:
        """What a person says to a question that a tool asks: the text that they enter as `answer`, else their decision."""
        key = self._next_key(call, ANSWER)
        self._asked.add(key)
        asked = call.args_as_dict()
        answer = await in_main_thread(
            self._ask,
            str(asked.get("question") or f"{self._agent} asks by the tool {call.tool_name}"),
            arguments={**asked, ANSWER: ""},
            detail=TAINTED if self._is_tainted() else "",
            expires=_policy_of(ctx, call).expires,
            key=key,
        )
        return reply_of(answer)

    def _next_key(self, call: ToolCallPart, about: str = "") -> str:
        """Some models use the id of a call again in a later turn."""
        named = " ".join(filter(None, (call.tool_name, call.tool_call_id, about)))
        key = wanted = fitting(f"{self._place}: {named}", beside="approval#1234")
        number = 1
        while key in self._asked:
            number += 1
            key = f"{wanted} {number}"
        return key


def _policy_of(ctx: RunContext[Any], call: ToolCallPart) -> ToolPolicy:
    tool = ctx.tool_manager.get_tool_def(call.tool_name) if ctx.tool_manager else None
    return ToolPolicy.of(call.tool_name, tool.metadata if tool else None)


def reply_of(answer: Answer) -> str:
    """The answer to a question as a text: "eu-west", or "yes", "no: not before Monday"."""
    if answer.decision == "expired":
        return NO_ANSWER
    given = answer.arguments.get(ANSWER, "") if isinstance(answer.arguments, dict) else ""
    if answer.decision == "edited" and given:
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    said = "no" if answer.decision == "denied" else "yes"
    return f"{said}: {answer.reason}" if answer.reason else said
