"""The requests of a graph to its models: each is a step of the run's journal, paid once from its budgets, and tainted as in `run.llm`.

A node that is executed again, by another process or by its retry policy, is given what is recorded (`executions`)."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage
from langgraph.config import get_config

from agents.exceptions import Permanent
from agents.frameworks.costs import Priced
from agents.frameworks.requests import Paid, Payable, RequestSteps
from agents.frameworks.tools import require_in_cap
from agents.graphs.costs import size_of, usage_of
from agents.graphs.executions import Executions, Outcome, execution_here
from agents.graphs.messages import Asked, message_in, recorded, tools_answered
from agents.graphs.refusals import passing
from agents.graphs.saver import JournalSaver
from agents.journal.begun import Begun
from agents.journal.budget import Limits
from agents.journal.concurrent import ConcurrentSteps, in_main_thread, to_its_end
from agents.journal.keys import node_here, outside_of_nodes
from agents.journal.protocol import fitting
from agents.llm.context import LlmContext

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

    @property
    def payable(self) -> Payable[AIMessage]:
        return Payable(
            kept=self.asked.kept,
            cost=lambda limits: self.priced.at_most(lambda: size_of(self.asked), limits),
            paid=self._paid,
            is_strange=bool(tools_answered(self.asked.messages) - self.trusted_tools),
        )

    def options(self, limits: Limits) -> Mapping[str, Any]:
        own = self.asked.options
        return {**own, self.bound: self.priced.output_at_most} if self.priced.is_to_be_bounded(limits) else own

    def _paid(self, message: AIMessage, limits: Limits) -> Paid:
        return Paid(output=recorded(message, self.asked.fingerprint), usage=usage_of(message, self.priced, limits))


class Requests:
    """Of one call of `run.graph`, whose key is `place`."""

    def __init__(self, place: str, steps: ConcurrentSteps, context: LlmContext, saver: JournalSaver) -> None:
        self._place = place
        self._steps = steps
        self._requests = RequestSteps(place, steps, context)
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
            payable = request.payable
            self._requests.taint_by(payable)
            begun = self._begin(key, payable)
            if begun.is_recorded:
                return self._recorded(key, request, begun.output)

            def pay(limits: Limits) -> AIMessage:
                with passing():
                    return send(request.options(limits))

            with self._noting(key):
                output = self._journal.perform(begun, lambda: self._requests.send(begun, payable, pay))
            return self._recorded(key, request, output)

    # From a coroutine: the journal belongs to the main thread

    async def answer_async(self, request: Request, send: SendAsync) -> AIMessage:
        node, versions = _node(self._place)
        await self._saver.wait_for_async(versions)
        key, outcome = self.executions.next(node, request.asked)
        if outcome is not None:
            return _given(outcome)
        payable = request.payable
        await in_main_thread(self._requests.taint_by, payable)

        async def pay(limits: Limits) -> AIMessage:
            with passing():
                return await send(request.options(limits))

        async def step() -> Any:
            with self._steps.beside(self._requests.step(key, payable)):
                begun = await in_main_thread(self._begin, key, payable)
                if begun.is_recorded:
                    return begun.output
                return await self._steps.run(begun, lambda: self._requests.send_async(begun, payable, pay))

        with self._noting(key):
            output = await to_its_end(step())  # LangGraph cancels nodes beside one that fails
        return self._recorded(key, request, output)

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

    def _begin(self, key: str, payable: Payable[AIMessage]) -> Begun:
        with outside_of_nodes():
            return self._journal.begin(self._requests.step(key, payable))

    @contextmanager
    def _noting(self, key: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self.executions.note(key, error)
            raise

    def _recorded(self, key: str, request: Request, output: Any) -> AIMessage:
        message = message_in(self._requests.answer_in(output, key, request.payable))
        self.executions.note(key, message)
        for call in message.tool_calls:
            require_in_cap(call["name"], request.cap)
        self._context.note_said(str(message.text))
        return message


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


def _node(place: str) -> tuple[str, dict[str, str]]:
    """The execution of the node that runs here, and the checkpoints (by namespace) from which it runs."""
    config: Any = get_config()
    inside = config["metadata"]["langgraph_checkpoint_ns"]
    return fitting(inside, beside=f"{place}:request 9999"), config["configurable"].get("checkpoint_map") or {}


def _given(outcome: Outcome) -> AIMessage:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome
