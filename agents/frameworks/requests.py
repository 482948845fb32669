"""The requests of other frameworks to their models: each is a step of the run's journal, paid once from its budgets, and tainted as in
`run.llm`."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import structlog

from agents.exceptions import Permanent
from agents.frameworks.failures import decide_after_failure, is_uncharged
from agents.journal.begun import Begun
from agents.journal.budget import NOTHING, Cost, Limits, Reserved, Used
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.protocol import Place, StepRequest
from agents.llm.context import LlmContext
from agents.llm.costs.used import used_by

T = TypeVar("T")

log = structlog.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Paid:
    """An answer as its step records it, with its usage."""

    output: dict[str, Any]
    usage: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Payable(Generic[T]):
    """A request as its step sees it: what the step keeps for the transcript, with the fingerprint of the prompt; the most that it may
    cost; what is paid with an answer; and whether a tool that is not trusted has written some of it."""

    kept: Mapping[str, Any]
    cost: Callable[[Limits], Cost | None]
    paid: Callable[[T, Limits], Paid]
    is_strange: bool

    @property
    def fingerprint(self) -> str:
        return str(self.kept["fingerprint"])


class RequestSteps:
    """Of one call of a framework, whose key is `place`."""

    def __init__(self, place: str, steps: ConcurrentSteps, context: LlmContext) -> None:
        self._place = place
        self._journal = steps.journal
        self._context = context

    def step(self, key: str, payable: Payable[Any]) -> StepRequest:
        place = Place(name=self._place, key=key)
        return StepRequest(place=place, effect="idempotent", kind="model", arguments=[dict(payable.kept)])

    def taint_by(self, payable: Payable[Any]) -> None:
        """Strangers may have written what woke the run, and what tools have read."""
        if not self._context.is_tainted() and (payable.is_strange or self._context.from_strangers()):
            self._context.taint()

    def send(self, begun: Begun, payable: Payable[T], send: Callable[[Limits], T]) -> dict[str, Any]:
        """The body of the step: its output."""
        reserved, limits = self._journal.reserve(payable.cost)
        try:
            answer = send(limits)
        except Exception as error:
            self._settle(reserved, _used_by_failure(error))
            decide_after_failure(begun, error)
        paid = payable.paid(answer, limits)
        begun.usage = paid.usage
        self._settle(reserved, used_by(paid.usage))
        return paid.output

    async def send_async(
        self, begun: Begun, payable: Payable[T], send: Callable[[Limits], Awaitable[T]]
    ) -> dict[str, Any]:
        """`send` from a coroutine: the journal belongs to the main thread."""
        reserved, limits = await in_main_thread(self._journal.reserve, payable.cost)
        try:
            answer = await send(limits)
        except Exception as error:
            await in_main_thread(self._settle, reserved, _used_by_failure(error))
            decide_after_failure(begun, error)
        paid = payable.paid(answer, limits)
        begun.usage = paid.usage
        await in_main_thread(self._settle, reserved, used_by(paid.usage))
        return paid.output

    def answer_in(self, output: Any, key: str, payable: Payable[Any]) -> Mapping[str, Any]:
        """The answer that the step has recorded."""
        if output is None:
            raise Permanent(
                f"the answer of {self._place}:{key} has been erased from the journal, so it cannot be replayed"
            )
        if output["prompt"] not in ("", payable.fingerprint):
            # The answer is used nevertheless: it is paid, and later steps depend on it.
            log.warning("llm.prompt_changed", request=key)
        answer: Mapping[str, Any] = output["answer"]
        return answer

    def _settle(self, reserved: Reserved | None, used: Used) -> None:
        if reserved is not None:
            self._journal.settle(reserved, used)


def _used_by_failure(error: Exception) -> Used:
    return NOTHING if is_uncharged(error) else {}
