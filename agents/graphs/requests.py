"""The requests of a graph to its models: each is a step of the run's journal, paid once from its budgets, and tainted as in `run.llm`.

A node that is executed again, by another process or by its retry policy, is given what is recorded (`executions`)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any, NoReturn

import structlog
from langchain_core.messages import AIMessage
from langgraph.config import get_config
from pydantic_ai.exceptions import ModelHTTPError

from agents.exceptions import Permanent, describe
from agents.graphs.costs import Priced
from agents.graphs.executions import Executions, Outcome, execution_here
from agents.graphs.messages import Asked, message_in, name_of, recorded, tools_answered
from agents.graphs.refusals import passing, require_in_cap
from agents.graphs.saver import JournalSaver
from agents.journal.begun import Begun
from agents.journal.budget import NOTHING, Limits, NoRoom, Reserved, Used
from agents.journal.concurrent import ConcurrentSteps, in_main_thread, to_its_end
from agents.journal.keys import node_here, outside_of_nodes
from agents.journal.protocol import Place, StepRequest, fitting
from agents.llm.context import LlmContext
from agents.llm.costs.used import used_by
from agents.llm.providers import failures

log = structlog.get_logger(__name__)

REFUSED = frozenset({400, 401, 402, 403, 404, 405, 413, 422})  # the same request would be refused again
BUSY = frozenset({429, 500, 502, 503, 504, 529})
# From the options of a request to the answer of the model.
Send = Callable[[Mapping[str, Any]], AIMessage]
SendAsync = Callable[[Mapping[str, Any]], Awaitable[AIMessage]]


@dataclass(frozen=True, kw_only=True)
class Request:
    """`asked` of the model that `priced` names; its answer is limited by the option `bound`."""

    asked: Asked
    priced: Priced
    trusted_tools: frozenset[str]
    bound: str
    cap: frozenset[str] | None  # the tools that its answer may call

    def options(self, limits: Limits) -> Mapping[str, Any]:
        own = self.asked.options
        return {**own, self.bound: self.priced.output_at_most} if self.priced.is_to_be_bounded(limits) else own


class Requests:
    """Of one call of `run.graph`, whose key is `place`."""

    def __init__(self, place: str, steps: ConcurrentSteps, context: LlmContext, saver: JournalSaver) -> None:
        self._place = place
        self._steps = steps
        self._journal = steps.journal
        self._context = context
        self._saver = saver
        self.executions = Executions(steps.journal, place)
        self._under_way = 0
        self._has_ended = False
        self._idle = threading.Condition()

    async def finish(self) -> None:
        """Refuse new requests of threads, and wait for those under way: they would be repeated."""
        self._has_ended = True
        self._saver.close()
        while self._under_way:
            await asyncio.sleep(0.02)

    @property
    def cap(self) -> frozenset[str] | None:
        return self._context.tools

    # From a node that is a plain function: in its own thread

    def answer(self, request: Request, send: Send) -> AIMessage:
        with self._beside():
            node, versions = _node(self._place)
            self._saver.wait_for(versions)
            key, outcome = self.executions.next(node, request.asked)
            if outcome is not None:
                return _given(outcome)
            self._taint_by(request)
            begun = self._begin(key, request)
            if begun.is_recorded:
                return self._recorded(key, request, begun.output)
            return self._noted(
                key, request, lambda: self._journal.perform(begun, lambda: self._sent(begun, request, send))
            )

    def _sent(self, begun: Begun, request: Request, send: Send) -> dict[str, Any]:
        reserved, limits = self._journal.reserve(lambda limits: request.priced.at_most(request.asked, limits))
        try:
            with passing():
                message = send(request.options(limits))
        except Exception as error:
            self._settle(reserved, NOTHING if failures.is_uncharged(_of_provider(error)) else {})
            _decide_after_failure(begun, error)
        output = self._paid(begun, request, message, limits)
        self._settle(reserved, used_by(begun.usage or {}))
        return output

    # From a coroutine: the journal belongs to the main thread

    async def answer_async(self, request: Request, send: SendAsync) -> AIMessage:
        node, versions = _node(self._place)
        await self._saver.wait_for_async(versions)
        key, outcome = self.executions.next(node, request.asked)
        if outcome is not None:
            return _given(outcome)
        await in_main_thread(self._taint_by, request)

        async def step() -> Any:
            with self._steps.beside(_step(self._place, key, request)):
                begun = await in_main_thread(self._begin, key, request)
                if begun.is_recorded:
                    return begun.output
                return await self._steps.run(begun, lambda: self._sent_async(begun, request, send))

        try:
            output = await to_its_end(step())  # LangGraph cancels nodes beside one that fails
        except Exception as error:
            self.executions.note(key, error)
            raise
        return self._recorded(key, request, output)

    async def _sent_async(self, begun: Begun, request: Request, send: SendAsync) -> dict[str, Any]:
        reserved, limits = await in_main_thread(
            self._journal.reserve, lambda limits: request.priced.at_most(request.asked, limits)
        )
        try:
            with passing():
                message = await send(request.options(limits))
        except Exception as error:
            await in_main_thread(self._settle, reserved, NOTHING if failures.is_uncharged(_of_provider(error)) else {})
            _decide_after_failure(begun, error)
        output = self._paid(begun, request, message, limits)
        await in_main_thread(self._settle, reserved, used_by(begun.usage or {}))
        return output

    # Both

    @contextmanager
    def _beside(self) -> Iterator[None]:
        with self._idle:
            if self._has_ended:
                raise Permanent(
                    "the graph of this request has ended, but a thread that it started still runs: await it in its node"
                )
            self._under_way += 1
        try:
            yield
        finally:
            with self._idle:
                self._under_way -= 1
                self._idle.notify_all()

    def _begin(self, key: str, request: Request) -> Begun:
        with outside_of_nodes():
            return self._journal.begin(_step(self._place, key, request))

    def _taint_by(self, request: Request) -> None:
        """Strangers may have written what woke the run, and what tools have read."""
        is_strange = bool(tools_answered(request.asked.messages) - request.trusted_tools)
        if not self._context.is_tainted() and (is_strange or self._context.from_strangers()):
            self._context.taint()

    def _noted(self, key: str, request: Request, perform: Callable[[], Any]) -> AIMessage:
        try:
            output = perform()
        except Exception as error:
            self.executions.note(key, error)
            raise
        return self._recorded(key, request, output)

    def _recorded(self, key: str, request: Request, output: Any) -> AIMessage:
        if output is None:
            raise Permanent(
                f"the answer of {self._place}:{key} has been erased from the journal, so it cannot be replayed"
            )
        if output["prompt"] not in ("", request.asked.fingerprint):
            # The answer is used nevertheless: it is paid, and later steps depend on it.
            log.warning("llm.prompt_changed", request=key)
        message = message_in(output)
        self.executions.note(key, message)
        for call in message.tool_calls:
            require_in_cap(call["name"], request.cap)
        self._context.note_said(str(message.text))
        return message

    def _paid(self, begun: Begun, request: Request, message: AIMessage, limits: Limits) -> dict[str, Any]:
        begun.usage = request.priced.usage_of(message, limits)
        return recorded(message, request.asked.fingerprint)

    def _settle(self, reserved: Reserved | None, used: Used) -> None:
        if reserved is not None:
            self._journal.settle(reserved, used)


_current: ContextVar[Requests | None] = ContextVar("graph_requests", default=None)


def of_this_graph() -> Requests | None:
    """The requests of the graph whose node runs here."""
    return _current.get()


@contextmanager
def through(requests: Requests) -> Iterator[None]:
    token, node = _current.set(requests), node_here.set(execution_here)
    try:
        yield
    finally:
        node_here.reset(node)
        _current.reset(token)


def in_cap(tools: Any, cap: frozenset[str] | None) -> list[Any]:
    """The tools of a request that the cap allows; those whose name is not known are looked at in the answer."""
    return [tool for tool in tools if cap is None or not name_of(tool) or name_of(tool) in cap]


def _step(place: str, key: str, request: Request) -> StepRequest:
    return StepRequest(
        place=Place(name=place, key=key), effect="idempotent", kind="model", arguments=[dict(request.asked.kept)]
    )


def _node(place: str) -> tuple[str, dict[str, str]]:
    """The execution of the node that runs here, and the checkpoints (by namespace) from which it runs."""
    config: Any = get_config()
    inside = config["metadata"]["langgraph_checkpoint_ns"]
    return fitting(inside, beside=f"{place}:request 9999"), config["configurable"].get("checkpoint_map") or {}


def _given(outcome: Outcome) -> AIMessage:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _decide_after_failure(begun: Begun, error: Exception) -> NoReturn:
    """A busy provider gets the request again later, from another attempt of the run; one that refuses the request does not."""
    if isinstance(error, NoRoom | Permanent):
        raise error
    error_of_provider, status = _of_provider(error), _status_of(error)
    if status in REFUSED:
        raise Permanent(describe(error)) from error
    most = failures.TRIES if status in BUSY else failures.FEW_TRIES
    begun.request = replace(begun.request, retries=most - 1)
    begun.try_again_after = failures.seconds_until_next(error_of_provider, begun.attempts)
    raise error


def _of_provider(error: Exception) -> Exception:
    """As pydantic-ai says it."""
    status = _status_of(error)
    headers = getattr(getattr(error, "response", None), "headers", None)
    return error if status is None else ModelHTTPError(status, "", headers=headers)


def _status_of(error: Exception) -> int | None:
    """The clients of OpenAI, Anthropic and others have the status of HTTP on their errors."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None
