"""A call of a tool, or of an output function, as one step of the run's journal."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai.durable_exec import JSON_CODEC, CallToolResult, durable_unit_scope, record_durable_unit
from pydantic_ai.durable_exec._toolset import unwrap_tool_call_result, wrap_tool_call_result
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolRetryError
from pydantic_core import to_jsonable_python

from agents.exceptions import Retry
from agents.guards.storable import shown
from agents.journal.begun import Begun, Undone
from agents.journal.budget import Cost
from agents.journal.concurrent import ConcurrentSteps, in_main_thread, to_its_end
from agents.journal.entries import RecordedStep
from agents.journal.protocol import Place, StepRequest, fitting
from agents.kernel.effects import Effects
from agents.llm.door.main_thread import run_without_loop
from agents.llm.providers.failures import refusals_final
from agents.llm.tools import ToolPolicy

# The payloads of successful calls; others give the reason of the failure (`ModelRetry`, `ToolFailed`, …).
DONE = ("tool_return", "tool_content_result")


class _AsksFirst(Retry):
    """The tool itself requested a person's approval, so the call was not made."""

    def __init__(self, metadata: dict[str, Any] | None) -> None:
        super().__init__("the tool asks for approval")
        self.metadata = metadata


class ToolSteps:
    """The tool calls of one call of run.llm, whose key is `place`. A tool call is named by its id in the recorded
    answer of the model: the same on every replay, also of parallel calls. Some models reuse an id.
    """

    def __init__(self, place: str, steps: ConcurrentSteps, journaled: set[tuple[str, str]]) -> None:
        self._place = place
        self._steps = steps
        self._journaled = journaled
        self._numbers: dict[str, int] = {}

    @property
    def step(self) -> str:
        """The step that runs here; empty outside of steps."""
        return self._steps.journal.step_key

    def has(self, tool: str, call: str) -> bool:
        """Has the journal recorded the next call of this name and id, whatever its outcome?"""
        return self._known(tool, call) is not None

    def is_made(self, tool: str, call: str) -> bool:
        """Has the journal recorded the outcome of the call, so that the tool is not called?"""
        known = self._known(tool, call)
        return known is not None and self._steps.journal.has_outcome(known)

    def take(self, tool: str, call: str) -> str:
        """The key of the next call of this name and id."""
        unit = f"{tool} {call}"
        self._numbers[unit] = self._numbers.get(unit, 0) + 1
        return self._key(unit, self._numbers[unit])

    async def charge(self, key: str, told: Any) -> None:
        """Count a call that is not a step itself, where calls are limited, by an empty step with this key."""
        limits = await in_main_thread(self._steps.journal.store.limits)  # a replay may not have read them yet
        if "tool_calls" not in limits.measures:
            return
        request = StepRequest(place=Place(name=self._place, key=key), effect="read", kind="tool", arguments=[told])

        async def step() -> None:
            with self._steps.beside(request):
                begun = await in_main_thread(self._begin, request)
                if not begun.is_recorded:
                    await in_main_thread(self._steps.journal.perform, begun, lambda: None)

        await to_its_end(step())

    async def call(
        self,
        tool: str,
        call: str,
        policy: ToolPolicy,
        arguments: Any,
        body: Callable[[], Awaitable[Any]],
        *,
        always_asks: bool = False,
    ) -> Any:
        """Call the tool, and record its result, or its error if pydantic-ai passes that on to the model. A call that
        failed leaves nothing behind: its writes are rolled back, its effects are dropped. A call that needs approval is
        not recorded, so that it can be made after it is approved.
        """
        key = self.take(tool, call)
        self._journaled.add((tool, call))
        [given] = shown([to_jsonable_python(arguments, bytes_mode="base64", fallback=repr)])
        told = {"tool": tool, "call": call, "arguments": given, **({} if policy.trusted else {"untrusted": True})}
        request = StepRequest(
            place=Place(name=self._place, key=key),
            effect=policy.effect,
            kind="tool",
            arguments=[told],
            is_dangerous=policy.dangerous or always_asks,
        )
        begun: Begun | None = None

        async def step() -> Any:
            nonlocal begun
            with self._steps.beside(request):
                begun = await in_main_thread(self._begin, request)
                if begun.is_recorded:
                    return begun.output
                act = partial(_payload, begun, body)
                if policy.effect == "transactional":
                    return await in_main_thread(
                        self._steps.journal.perform, begun, partial(run_without_loop, tool, act)
                    )
                return await self._steps.run(begun, act)

        try:
            payload = await to_its_end(step())
        except _AsksFirst as asks:
            self._numbers[f"{tool} {call}"] -= 1
            if begun is not None:
                await in_main_thread(self._steps.journal.withdraw, begun)
            raise ApprovalRequired(asks.metadata) from asks
        record_durable_unit(executed=begun is not None and not begun.is_recorded)
        return unwrap_tool_call_result(JSON_CODEC.load(CallToolResult, payload))

    def _known(self, tool: str, call: str) -> RecordedStep | None:
        unit = f"{tool} {call}"
        key = self._key(unit, self._numbers.get(unit, 0) + 1)
        return self._steps.journal.store.steps.get(f"{self._place}:{key}")

    def _begin(self, request: StepRequest) -> Begun:
        journal = self._steps.journal
        is_limited = "tool_calls" in journal.store.limits().measures
        cost = Cost(tool_calls=1) if is_limited else None
        return journal.begin(replace(request, cost=cost))

    def _key(self, unit: str, number: int) -> str:
        return fitting(unit if number == 1 else f"{unit} {number}", beside=self._place)


async def _payload(begun: Begun, body: Callable[[], Awaitable[Any]]) -> Any:
    with durable_unit_scope(), refusals_final():
        result: Any = await wrap_tool_call_result(_with_plain_errors(body))
    if result.kind == "approval_required":
        raise _AsksFirst(result.metadata)
    payload = JSON_CODEC.dump(CallToolResult, result)
    if result.kind not in DONE:
        if begun.request.effect == "transactional":
            raise Undone(payload)
        begun.effects = Effects()
    return payload


async def _with_plain_errors(body: Callable[[], Awaitable[Any]]) -> Any:
    try:
        return await body()
    except ToolRetryError as error:  # of an output function, which pydantic-ai has wrapped already
        raise ModelRetry(str(error.tool_retry.content)) from error
