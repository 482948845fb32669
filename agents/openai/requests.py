"""The requests of one call of `run.openai`: each is a step of the run's journal, paid once from its budgets. So is each call of a tool of
an MCP server, which is not made again where it is not known whether it happened."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from agents.exceptions import Permanent
from agents.frameworks.clients import clients_of, without_retries
from agents.frameworks.costs import Priced
from agents.frameworks.requests import Paid, Payable, RequestSteps
from agents.frameworks.tools import in_cap, require_in_cap
from agents.guards.openai_agents import Given, ask_with
from agents.guards.provider_loop import sent
from agents.journal.begun import Begun
from agents.journal.budget import Cost, Limits
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.protocol import Place, StepRequest, fitting
from agents.kernel.redaction import know
from agents.llm.context import LlmContext
from agents.llm.costs.metered import BOUNDED
from agents.openai import messages, refusals
from agents.openai.costs import priced, size_of, usage_of
from agents.openai.lanes import Lanes
from agents.openai.sdk import sdk

T = TypeVar("T")
Send = Callable[[Given], Coroutine[Any, Any, Any]]  # from the arguments of a request to a `ModelResponse`


@dataclass(frozen=True, kw_only=True)
class Request:
    given: Given
    priced: Priced
    kept: dict[str, Any]
    is_strange: bool

    @property
    def payable(self) -> Payable[Any]:
        return Payable(
            kept=self.kept,
            cost=self._at_most,
            paid=self._paid,
            is_strange=self.is_strange,
        )

    def _at_most(self, limits: Limits) -> Cost | None:
        if limits.measures & BOUNDED:
            refusals.require_reserved(self.given)
        return self.priced.at_most(lambda: size_of(self.given), limits)

    def bounded(self, limits: Limits) -> Given:
        if not self.priced.is_to_be_bounded(limits):
            return self.given
        bound = sdk().ModelSettings(max_tokens=self.priced.output_at_most)
        return {**self.given, "model_settings": self.given["model_settings"].resolve(bound)}

    def _paid(self, answer: Any, limits: Limits) -> Paid:
        output = messages.recorded(answer, str(self.kept["fingerprint"]))
        return Paid(output=output, usage=usage_of(answer, self.priced, limits))


class Requests:
    """Of one call of `run.openai`, whose key is `place`."""

    def __init__(self, place: str, steps: ConcurrentSteps, context: LlmContext, trusted_tools: frozenset[str]) -> None:
        self._place = place
        self._steps = steps
        self._journal = steps.journal
        self._context = context
        self._trusted = trusted_tools
        self._requests = RequestSteps(place, steps, context)
        self._lanes = Lanes(steps.journal, place)
        self._handoffs: set[str] = set()  # the names of tools that are handoffs
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._has_ended = False
        self.refusal: Permanent | None = None  # the SDK makes a text of what a tool raises

    async def finish(self) -> None:
        """Refuse new requests, and wait for those under way: they would be repeated."""
        self._has_ended = True
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def taint_by_results(self) -> None:
        """The result of the call may be that of a tool, which no model has read (`tool_use_behavior`)."""
        if self._is_strange(self._lanes.here.called):
            await in_main_thread(self._context.taint)

    # What `agents.guards.openai_agents` brings

    def nested(self, agent: Any, input: Any, named: Given) -> AbstractContextManager[None]:
        with self._final():
            refusals.require_admissible(input, named, self._context.tools)
        return self._lanes.entered(agent, input)

    async def response(self, model: Any, ask: Callable[..., Any], given: Given) -> Any:
        async def send(given: Given) -> Any:
            return await ask_with(ask, model, given)

        return await self._on_own_loop(self._answer(model, given, send))

    async def stream(self, model: Any, ask: Callable[..., Any], given: Given) -> AsyncIterator[Any]:
        """It is given once its answer is recorded, in the events in which it came; on a replay in one."""
        events: list[Any] = []

        async def send(given: Given) -> Any:
            events[:] = [event async for event in ask_with(ask, model, given)]
            return messages.in_stream(events)

        answer = await self._on_own_loop(self._answer(model, given, send))
        for event in events or [messages.completed(answer, str(getattr(model, "model", "")))]:
            yield event

    async def tool(self, server: Any, ask: Callable[..., Any], name: str, arguments: Any, named: Given) -> Any:
        from mcp.types import CallToolResult

        if hasattr(server, "max_retry_attempts"):
            server.max_retry_attempts = 0  # only steps make calls

        async def call(begun: Begun) -> Any:
            result = await ask(server, name, arguments, **named)
            return result.model_dump(mode="json", by_alias=True)

        key = self._lanes.name(f"{server.name} {name}", arguments)
        place = Place(name=self._place, key=fitting(key, beside=self._place))
        request = StepRequest(place=place, effect="at_most_once", arguments=[arguments])
        output = await self._on_own_loop(self._to_its_end(self._step(request, call)))
        return CallToolResult.model_validate(output)

    # Steps

    async def _answer(self, model: Any, given: Given, send: Send) -> Any:
        lane, cap = self._lanes.here, self._context.tools
        know(*(key for one in clients_of(model) if isinstance(key := getattr(one, "api_key", None), str)))
        without_retries(model)
        with self._final():
            refusals.require_its_own_tools(given, cap)
        given = {**messages.clean(given), "tools": in_cap(given["tools"], cap)}
        self._handoffs.update(one.tool_name for one in given["handoffs"])
        charged = priced(model, given)
        kept = messages.kept(given, charged.model_name, lane.begins(given))
        request = Request(
            given=given,
            priced=charged,
            kept=kept,
            is_strange=self._is_strange(messages.tools_read(given["input"]) | lane.called),
        )
        payable = request.payable
        task = lane.made.get(payable.fingerprint)
        if task is None:
            key = lane.next(payable.fingerprint)
            task = asyncio.ensure_future(self._paid(key, request, send))
            lane.made[payable.fingerprint] = task
        answer = await self._to_its_end(task)
        lane.made.pop(payable.fingerprint, None)  # where the SDK repeats a request that has failed, it has failed
        lane.kept = len(given["input"]) + len(answer.output)
        lane.called |= messages.functions_called(answer.output)
        return answer

    async def _paid(self, key: str, request: Request, send: Send) -> Any:
        payable = request.payable
        await in_main_thread(self._requests.taint_by, payable)

        def body(begun: Begun) -> Awaitable[Any]:
            return self._requests.send_async(begun, payable, lambda limits: sent(send(request.bounded(limits))))

        output = await self._step(self._requests.step(key, payable), body)
        answer = messages.answer_of(self._requests.answer_in(output, key, payable))
        with self._final():
            for tool in messages.tools_called(answer.output) - self._handoffs:
                require_in_cap(tool, self._context.tools)
        if self._is_strange(messages.tools_read(answer.output)):
            await in_main_thread(self._context.taint)
        self._context.note_said(messages.text_of(answer.output))
        return answer

    async def _step(self, request: StepRequest, body: Callable[[Begun], Awaitable[Any]]) -> Any:
        with self._steps.beside(request):
            begun = await in_main_thread(self._journal.begin, request)
            return begun.output if begun.is_recorded else await self._steps.run(begun, lambda: body(begun))

    def _is_strange(self, tools: set[str]) -> bool:
        return bool(tools - self._trusted - self._handoffs)

    @contextmanager
    def _final(self) -> Iterator[None]:
        """What is refused here fails the run, in a tool too."""
        try:
            yield
        except Permanent as refusal:
            self.refusal = self.refusal or refusal
            raise

    async def _on_own_loop(self, act: Coroutine[Any, Any, T]) -> T:
        """A tool that is a plain function may run an agent on an event loop of its thread."""
        if self._has_ended:
            act.close()
            raise Permanent(f"the agent of {self._place!r} has ended, but a task that it started still runs: await it")
        if asyncio.get_running_loop() is self._loop:
            return await act
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(act, self._loop))

    async def _to_its_end(self, act: Awaitable[T]) -> T:
        """The SDK cancels what runs beside a guardrail that trips, and a half-done step would be repeated."""
        task = asyncio.ensure_future(act)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may have gone
        return await asyncio.shield(task)
