"""Each model request, and other work of pydantic-ai beside calls of tools, as a step of the run's journal."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import structlog
from pydantic_ai import RunContext
from pydantic_ai.durable_exec import (
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    OperationConfigRole,
    ToolsetCallToolId,
    record_durable_unit,
)
from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import Model

from agents.exceptions import Permanent, Retry, describe
from agents.journal.begun import Begun
from agents.journal.budget import Limits, NoRoom
from agents.journal.concurrent import ConcurrentSteps, in_main_thread, to_its_end
from agents.journal.protocol import Effect, Place, StepRequest, fitting
from agents.llm.costs.prices import Prices
from agents.llm.costs.usage import usage_of_recorded
from agents.llm.door.tool_steps import ToolSteps
from agents.llm.providers import failures
from agents.llm.requests.answers import recordable
from agents.llm.requests.left import Content, content_of
from agents.llm.requests.prompts import Prompts

log = structlog.get_logger(__name__)

NOTHING_LIMITED = Limits()  # of a request that is not made


@dataclass(frozen=True, kw_only=True)
class Unit:
    """A unit of work that pydantic-ai runs as one step."""

    effect: Effect = "idempotent"


class StepBackend(JournalCallableOperationBackend[Unit]):
    """Runs each unit of an LLM agent as a step of the journal. The answer to a model request is recorded with the
    fingerprint of its prompt.
    """

    def __init__(
        self,
        call: str,
        agent_name: str,
        steps: ConcurrentSteps,
        model_effect: Effect,
        session: Sequence[ModelMessage] | None = None,
        names: Sequence[str] = (),
    ) -> None:
        super().__init__(agent_name=agent_name, config=UnitConfig(model_effect))
        self._call = call
        self._steps = steps
        self._numbers: dict[str, int] = {}
        self._prompts = Prompts(session)
        self.tools = ToolSteps(call, steps, self._prompts.journaled)
        self._drifted: list[str] = []
        self._names = names

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Unit,
    ) -> object:
        if isinstance(operation_id, ToolsetCallToolId):
            return await body()  # within the step that the door has made of the call
        is_model = isinstance(operation_id, ModelRequestId | ModelCompactMessagesId)
        asked = self._asked(operation_id, cache_key)
        request = StepRequest(
            place=Place(name=self._call, key=self._key(operation_id, name, cache_key)),
            effect=config.effect,
            kind="model" if is_model else "tool",
            arguments=[asked] if asked else (),
        )

        async def step() -> tuple[Begun, Any]:
            with self._steps.beside(request):
                left = self._left(operation_id, cache_key, asked)
                begun, limits = await in_main_thread(self._begin, request, left)
                if begun.is_recorded:
                    return begun, begun.output
                if is_model:
                    model: Any = _context(cache_key).model
                    answer = self._answered(begun, body, asked.get("fingerprint", ""), model, Prices(limits.prices))
                    return begun, await self._steps.run(begun, answer)
                return begun, await self._steps.run(begun, body)

        begun, output = await to_its_end(step())
        record_durable_unit(executed=not begun.is_recorded)
        if not is_model:
            return output
        if output["prompt"] != asked.get("fingerprint", ""):
            self._note_drift(begun.key)
        return output["answer"]

    def _begin(self, request: StepRequest, left: Content | None = None) -> tuple[Begun, Limits]:
        """Begin a step in the main thread, in one visit: each change of threads costs as much as a statement. A request that is
        `left` is made by another process, where that is better, and this one raises."""
        journal = self._steps.journal

        def leave(begun: Begun) -> None:
            if left and self._steps.is_alone and journal.leaves_requests and (content := left()):
                journal.leave_request(begun, content, f"an answer of {' or '.join(self._names)}")

        begun = journal.begin(request, leave)
        return begun, NOTHING_LIMITED if begun.is_recorded else journal.store.limits()

    def _left(
        self, operation_id: DurableOperationId, cache_key: tuple[object, ...], asked: dict[str, Any]
    ) -> Content | None:
        """The content of a request that needs nothing of this process: no handler of its stream, no model of the agent's own."""
        if not self._names or not isinstance(operation_id, ModelRequestId) or operation_id.streaming:
            return None
        context = _context(cache_key)
        root = context.root_capability
        model: Any = context.model
        is_swapped = not getattr(model, "is_metered", False)
        if is_swapped or (root and root.get_wrapper_model(model) is not None):
            return None
        _, messages, settings, parameters, _ = cache_key
        told: Any = (messages, settings, parameters)
        return partial(content_of, self._names, model, *told, prompt=asked.get("fingerprint", ""))

    def _asked(self, operation_id: DurableOperationId, cache_key: tuple[object, ...]) -> dict[str, Any]:
        """The content of a model request, for the transcript."""
        if not isinstance(operation_id, ModelRequestId):
            return {}
        _, messages, settings, parameters, _ = cache_key
        asked = self._prompts.next(messages, settings, parameters)  # type: ignore[arg-type]
        return {**asked, **({"drifted": [*self._drifted]} if self._drifted else {})}

    def _note_drift(self, key: str) -> None:
        """Note a changed prompt. The recorded answer is used nevertheless: it is paid, and later steps depend on it."""
        if not self._drifted:
            log.warning("llm.prompt_changed", request=key)
        self._drifted.append(key.partition(f"{self._call}:")[2])

    def _answered(
        self, begun: Begun, body: Callable[[], Awaitable[object]], prompt: str, model: Model, prices: Prices
    ) -> Callable[[], Awaitable[object]]:
        """Repeat the request here while its provider is busy for some seconds; for longer, the run releases its worker.
        A request that may be made only once is repeated only if the provider certainly charged nothing.
        """

        async def request() -> object:
            tries = begun.attempts
            while True:
                try:
                    response = recordable(await body())
                except NoRoom:
                    raise
                except Exception as error:
                    is_once = begun.request.effect == "at_most_once"
                    may_again = failures.passes(error) and (failures.is_uncharged(error) or not is_once)
                    seconds = failures.seconds_until_next(error, tries)
                    if not may_again or seconds > failures.SHORT or tries >= failures.TRIES:
                        self._decide_after_failure(begun, error, seconds if may_again else None)
                        raise
                    tries += 1
                    if not is_once:  # one that was certainly not worked on is no attempt of what may be made once
                        begun.attempts = tries
                    await asyncio.sleep(seconds)
                else:
                    begun.usage = usage_of_recorded(response, model, prices)
                    return {"prompt": prompt, "answer": response}

        return request

    def _decide_after_failure(self, begun: Begun, error: Exception, seconds: float | None) -> None:
        """Decide what happens after a failed request; `seconds`: when it may be repeated."""
        if failures.is_refusal(error):
            raise Permanent(describe(error)) from error
        if begun.request.effect != "at_most_once":
            begun.request = replace(begun.request, retries=failures.most_tries(error) - 1)
            begun.try_again_after = seconds
        elif seconds is not None:
            raise Retry(describe(error), after=seconds) from error

    def _key(self, operation_id: DurableOperationId, name: str, cache_key: tuple[object, ...]) -> str:
        """The key of a unit: a call's id for the validator of that call, a number for all others. Keys are the same on
        every replay, also of parallel calls.
        """
        if isinstance(operation_id, ModelRequestId):
            return f"request {self._number('request')}"
        unit = name.partition("__")[2]
        context = next((part for part in cache_key if isinstance(part, RunContext)), None)
        if context and context.tool_call_id:
            unit = f"{unit} {context.tool_call_id}"
            number = self._number(unit)
            return fitting(unit if number == 1 else f"{unit} {number}", beside=self._call)
        return fitting(f"{unit} {self._number(unit)}", beside=self._call)

    def _number(self, name: str) -> int:
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return self._numbers[name]


def _context(cache_key: tuple[object, ...]) -> RunContext[Any]:
    return next(part for part in cache_key if isinstance(part, RunContext))


class UnitConfig:
    """Names the unit that a model request, or other work of pydantic-ai, belongs to."""

    def __init__(self, model_effect: Effect) -> None:
        self._model_effect = model_effect

    def base(self, role: OperationConfigRole, *, operation_id: DurableOperationId) -> Unit:
        return Unit(effect=self._model_effect if role == "model" else "idempotent")

    def for_tool(
        self, role: OperationConfigRole, *, operation_id: DurableOperationId, tool: Any, tool_name: str
    ) -> Unit | Literal[False]:
        return Unit(effect="read")  # a validator of arguments
