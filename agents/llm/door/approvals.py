"""Tools that need approval: a person approves the exact arguments of a call, edits them or denies the call, once. A
person is shown exactly the arguments of the call: validated, with defaults, after all hooks.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults, ToolApproved, ToolDenied

from agents.exceptions import Permanent
from agents.guards.storable import storable
from agents.journal.canonical import canonical, digest_of
from agents.journal.concurrent import in_main_thread
from agents.journal.entries import RecordedWait
from agents.journal.protocol import Answer, fitting
from agents.llm.context import LlmContext
from agents.llm.door.danger import TAINTED
from agents.llm.door.shown_arguments import as_json, is_as_entered
from agents.llm.tools import SHOWN, ToolPolicy

ANSWER = "answer"  # the argument of a question that a person fills in
NO_ANSWER = "No person has answered in time."


class Approver:
    """`place` is the key of the call of run.llm; `recorded` gives the question that the journal has under a key."""

    def __init__(self, context: LlmContext, place: str, recorded: Callable[[str], RecordedWait | None]) -> None:
        self._agent = context.agent
        self._place = place
        self._ask = context.ask
        self._is_tainted = context.is_tainted
        self._recorded = recorded
        self._asked: set[str] = set()
        self._wanted: dict[tuple[str, str], tuple[Any, str]] = {}  # arguments of calls that need approval, and why
        self._granted: dict[tuple[str, str], tuple[Answer, Any]] = {}  # and what the person was shown
        self._outputs: dict[str, str] = {}  # approved, by the id of the call

    def was_asked(self, tool: str, call: str) -> bool:
        """Has a person decided about this call? The call is bound to that decision, even if today's code needs none."""
        return self._recorded(self._next_key(tool, call)) is not None

    def wants(self, tool: str, call: str, arguments: Any, why: str) -> None:
        """Note that the call, with these validated arguments, needs approval for this reason."""
        self._wanted[tool, call] = (as_json(arguments), why)

    async def use(
        self, tool: str, call: str, arguments: Any, *, is_made: bool, why: str, expires: timedelta
    ) -> str | None:
        """Use up the approval of this call. Empty: approved; None: no person has decided; else the answer for the
        model. Where an edit comes out of the validation as other arguments than were entered, the person is shown those
        too. A call that the journal has (`is_made`) is not compared once more. Permanent: a person approved other
        arguments.
        """
        if (tool, call) not in self._granted:
            return None
        answer, before = self._granted.pop((tool, call))
        shown = _stored(as_json(arguments))
        if canonical(answer.arguments) == canonical(shown) or (is_made and not self.was_asked(tool, call)):
            return ""
        if answer.decision == "edited":
            if is_as_entered(answer.arguments, shown, before):
                return ""
            answer = await self.decide(tool, call, shown, why, expires)
            if answer.decision == "edited":
                return f"A person wants these arguments instead: {json.dumps(answer.arguments, ensure_ascii=False)}"
            if not answer:
                return said(answer)
        if not is_made:
            self.require_shown(tool, call, answer, shown)
        return ""

    def require_shown(self, tool: str, call: str, answer: Answer, arguments: Any) -> None:
        """Raises Permanent if a person was shown other arguments than these."""
        if canonical(answer.arguments) != canonical(_stored(arguments)):
            raise Permanent(
                f"a person approved the call {call!r} of {tool!r} with other arguments than it would be made with: a validator or "
                "a hook changes them from one time to the next, or the tool has changed since. Change them in the tool itself"
            )

    def approve_output(self, call: str, output: Any) -> None:
        self._outputs[call] = canonical(as_json(output))

    def require_approved_output(self, call: str, output: Any) -> None:
        """Raises Permanent if the output differs from the one that a person approved."""
        approved = self._outputs.pop(call, None)
        if approved is not None and approved != canonical(as_json(output)):
            raise Permanent(
                f"a person approved the output of call {call!r} as another one than its function would be called with: a hook changes it. "
                "Change it in the function itself"
            )

    async def resolve(self, ctx: RunContext[Any], requests: DeferredToolRequests) -> DeferredToolResults:
        """Request approval of each call in turn, and wait for the decisions without a worker."""
        results = DeferredToolResults()
        for call in requests.approvals:
            results.approvals[call.tool_call_id] = await self._decision(ctx, call, _beside(requests, call))
        for call in requests.calls:
            if requests.kind(call.tool_call_id) == "question":
                results.calls[call.tool_call_id] = await self._reply(ctx, call)
        return results

    async def _decision(self, ctx: RunContext[Any], call: ToolCallPart, beside: str) -> ToolApproved | ToolDenied:
        name, number = call.tool_name, call.tool_call_id
        # A validator that requests approval has not passed the door: the model's own arguments are shown.
        arguments, why = self._wanted.pop((name, number), (call.args_as_dict(), ""))
        try:
            detail = " ".join(filter(None, (beside, why or (TAINTED if self._is_tainted() else ""))))
            answer = await self.decide(name, number, arguments, detail, _policy_of(ctx, call).expires)
        except ValueError as error:
            return ToolDenied(
                f"A person must approve this call, but {error}. Call the tool again with other arguments."
            )
        if not answer:
            return ToolDenied(said(answer))
        is_edited = answer.decision == "edited"
        self._granted[name, number] = answer, arguments
        # Edited arguments are validated like the model's own.
        return ToolApproved(override_args=json.loads(json.dumps(answer.arguments)) if is_edited else None)

    async def decide(self, tool: str, call: str, arguments: Any, why: str, expires: timedelta) -> Answer:
        """A person's decision on a call with these arguments. ValueError: the arguments cannot be shown."""
        key = self._next_key(tool, call)
        self._asked.add(key)
        try:
            arguments = _stored(arguments)
        except Permanent as error:
            raise ValueError(str(error)) from error
        question = f"{self._agent} wants to call the tool {tool}"

        def ask() -> Answer:
            known = self._recorded(key)
            is_other = known is not None and tuple(known.sought) != ("approval", digest_of(question, arguments))
            answer = self._ask(
                question,
                # The decision is on what was shown then; `use` compares it with what the call would be made with today.
                arguments=known.asked_about if known and is_other else arguments,
                detail=why or (TAINTED if self._is_tainted() else ""),
                expires=expires,
                key=key,
            )
            is_bare = answer.decision == "approved" and answer.arguments is None  # as a test may answer
            return replace(answer, arguments=arguments) if is_bare and not is_other else answer

        return await in_main_thread(ask)

    async def _reply(self, ctx: RunContext[Any], call: ToolCallPart) -> str:
        """A person's reply to a question that a tool asks: the text that they enter as `answer`, else their decision."""
        key = self._next_key(call.tool_name, call.tool_call_id, ANSWER)
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

    def _next_key(self, tool: str, call: str, about: str = "") -> str:
        """Some models use the id of a call again in a later turn."""
        named = " ".join(filter(None, (tool, call, about)))
        key = wanted = fitting(f"{self._place}: {named}", beside="approval#1234")
        number = 1
        while key in self._asked:
            number += 1
            key = f"{wanted} {number}"
        return key


def _beside(requests: DeferredToolRequests, call: ToolCallPart) -> str:
    """What the tool has the person shown besides the arguments: `ApprovalRequired(metadata={SHOWN: …})`."""
    return str((requests.metadata.get(call.tool_call_id) or {}).get(SHOWN, ""))


def said(answer: Answer) -> str:
    """A decision as a text for the model: "denied: not this month"."""
    return f"{answer.decision}{f': {answer.reason}' if answer.reason else ''}"


def _stored(arguments: Any) -> Any:
    return storable(arguments, "the arguments of the call")


def _policy_of(ctx: RunContext[Any], call: ToolCallPart) -> ToolPolicy:
    tool = ctx.tool_manager.get_tool_def(call.tool_name) if ctx.tool_manager else None
    return ToolPolicy.of_tool(tool) if tool else ToolPolicy()


def reply_of(answer: Answer) -> str:
    """The answer to a question as a text: "eu-west", or "yes", "no: not before Monday"."""
    if answer.decision == "expired":
        return NO_ANSWER
    given = answer.arguments.get(ANSWER, "") if isinstance(answer.arguments, dict) else ""
    if answer.decision == "edited" and given:
        return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    said = "no" if answer.decision == "denied" else "yes"
    return f"{said}: {answer.reason}" if answer.reason else said
