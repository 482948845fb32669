"""Pydantic-ai's extension point for durable execution, over the run's journal: each model request, tool call and discovery of
tools is a step. A replay is handed what is recorded, so it pays for nothing and calls nothing."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Literal, TypeVar

import structlog
from django.utils.crypto import salted_hmac
from pydantic import ValidationError
from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities.abstract import (
    RawToolArgs,
    ValidatedToolArgs,
    WrapToolExecuteHandler,
    WrapToolValidateHandler,
)
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    DurabilityEngineSpec,
    DurableOperationId,
    JournalCallableOperationBackend,
    ModelCompactMessagesId,
    ModelRequestId,
    OperationConfigRole,
    ToolsetCallToolId,
    conversation_id_from_run_id,
    record_durable_unit,
)
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelMessage, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_core import to_jsonable_python

from agents.exceptions import Permanent, Retry, describe
from agents.guards.storable import shown
from agents.journal.budget import Cost, Limits
from agents.journal.concurrent import ConcurrentSteps, in_main_thread
from agents.journal.engine import Begun
from agents.journal.protocol import Effect, Place, StepRequest, fitting
from agents.llm import failures
from agents.llm.answers import recordable
from agents.llm.approvals import Approver
from agents.llm.builtin import BUILTIN
from agents.llm.estimate import output_at_most, worst_case
from agents.llm.main_thread import run_without_loop
from agents.llm.prices import Prices
from agents.llm.prompts import Prompts
from agents.llm.secrets import redacted_messages, redacted_parameters
from agents.llm.tools import ToolPolicy
from agents.llm.untrusted import fence, fenced_return
from agents.llm.usage import usage_of

T = TypeVar("T")
log = structlog.get_logger(__name__)

# The same tool with the same arguments gave the same result so many times: the model goes round in circles.
SAME_RESULTS = 3


@dataclass(frozen=True, kw_only=True)
class Unit:
    """What pydantic-ai wants done as one step."""

    effect: Effect = "idempotent"
    tool: str = ""
    is_untrusted: bool = False  # what it gives is data of strangers


class StepBackend(JournalCallableOperationBackend[Unit]):
    """Hands each unit of an LLM agent to the journal. What a request to a model gave is recorded beside the fingerprint of
    its prompt."""

    def __init__(
        self,
        call: str,
        agent_name: str,
        steps: ConcurrentSteps,
        model_effect: Effect,
        session: Sequence[ModelMessage] | None = None,
    ) -> None:
        super().__init__(agent_name=agent_name, config=UnitConfig(model_effect))
        self._call = call
        self._steps = steps
        self._numbers: dict[str, int] = {}
        self._prompts = Prompts(session)
        self._drifted: list[str] = []

    async def execute(
        self,
        *,
        operation_id: DurableOperationId,
        name: str,
        body: Callable[[], Awaitable[object]],
        cache_key: tuple[object, ...],
        config: Unit,
    ) -> object:
        is_model = isinstance(operation_id, ModelRequestId | ModelCompactMessagesId)
        asked = self._asked(operation_id, cache_key, config)
        request = StepRequest(
            place=Place(name=self._call, key=self._key(operation_id, name, cache_key)),
            effect=config.effect,
            kind="model" if is_model else "tool",
            arguments=[asked] if asked else (),
        )
        cost = partial(_cost, operation_id, cache_key, config)

        async def step() -> tuple[Begun, Any]:
            with self._steps.beside(request):
                begun, limits = await in_main_thread(self._begin, request, cost)
                if begun.is_recorded:
                    return begun, begun.output
                if config.effect == "transactional":
                    act = partial(run_without_loop, config.tool, body)
                    return begun, await in_main_thread(self._steps.journal.perform, begun, act)
                if is_model:
                    model: Any = _context(cache_key).model
                    answer = self._answered(begun, body, asked.get("fingerprint", ""), model, Prices(limits.prices))
                    return begun, await self._steps.run(begun, answer)
                return begun, await self._steps.run(begun, body)

        begun, output = await _to_its_end(step())
        record_durable_unit(executed=not begun.is_recorded)
        if not is_model:
            return output
        if output["prompt"] != asked.get("fingerprint", ""):
            self._note_drift(begun.key)
        return output["answer"]

    def _begin(self, request: StepRequest, cost: Callable[[Limits], Cost | None]) -> tuple[Begun, Limits]:
        """In the main thread, all of it at once: the way there and back costs as much as a statement."""
        journal = self._steps.journal
        known = journal.store.steps.get(f"{self._call}:{request.place.key}")
        if request.kind == "model" and (known is None or known.status != "done"):
            journal.require_wanted()  # no request begins once its agent is stopped
        limits = journal.store.limits()
        return journal.begin(replace(request, cost=cost(limits))), limits

    def _asked(self, operation_id: DurableOperationId, cache_key: tuple[object, ...], unit: Unit) -> dict[str, Any]:
        """What a request says to the model, or a call to a tool, for the transcript."""
        if isinstance(operation_id, ModelRequestId):
            _, messages, settings, parameters, _ = cache_key
            asked = self._prompts.next(messages, settings, parameters)  # type: ignore[arg-type]
            return {**asked, **({"drifted": [*self._drifted]} if self._drifted else {})}
        if isinstance(operation_id, ToolsetCallToolId):
            tool, arguments, context, _ = cache_key
            call = context.tool_call_id if isinstance(context, RunContext) else None
            self._prompts.journaled.add((str(tool), call or ""))
            [given] = shown([to_jsonable_python(arguments, fallback=repr)])
            told = {"tool": tool, "call": call, "arguments": given}
            return {**told, **({"untrusted": True} if unit.is_untrusted else {})}
        return {}

    def _note_drift(self, key: str) -> None:
        """The recorded answer is given all the same: it is paid, and what came after it was built on it."""
        if not self._drifted:
            log.warning("llm.prompt_changed", request=key)
        self._drifted.append(key.partition(f"{self._call}:")[2])

    async def limits(self) -> Limits:
        store = self._steps.journal.store
        known = store.known_limits
        return await in_main_thread(store.limits) if known is None else known

    def _answered(
        self, begun: Begun, body: Callable[[], Awaitable[object]], prompt: str, model: Model, prices: Prices
    ) -> Callable[[], Awaitable[object]]:
        """A request whose provider is busy for some seconds is made again here. For longer, the run gives its worker back;
        also where a request under a budget may have been charged: the next one makes a new reservation. A request that may be made
        once is made again only if it is sure that nothing was charged for it."""

        async def request() -> object:
            while True:
                try:
                    response = recordable(await body())
                except Exception as error:
                    is_once = begun.request.effect == "at_most_once"
                    is_reserved = begun.request.cost is not None
                    is_free = failures.is_uncharged(error)
                    may_again = failures.passes(error) and (is_free or not is_once)
                    seconds = failures.seconds_until_next(error, begun.attempts)
                    is_soon = seconds <= failures.SHORT and begun.attempts < failures.TRIES
                    if not may_again or not is_soon or (is_reserved and not is_free):
                        if is_reserved and is_free:
                            await in_main_thread(self._steps.journal.store.give_back, begun.key)
                        self._settle(begun, error, seconds if may_again else None)
                        raise
                    begun.attempts += 1
                    await asyncio.sleep(seconds)
                else:
                    begun.usage = usage_of(response, model, prices)
                    return {"prompt": prompt, "answer": response}

        return request

    def _settle(self, begun: Begun, error: Exception, seconds: float | None) -> None:
        """Say what becomes of a request that failed; `seconds`: when it may be made again."""
        if failures.is_refusal(error):
            raise Permanent(describe(error)) from error
        if begun.request.effect != "at_most_once":
            begun.request = replace(begun.request, retries=failures.most_tries(error) - 1)
            begun.try_again_after = seconds
        elif seconds is not None:
            raise Retry(describe(error), after=seconds) from error

    def _key(self, operation_id: DurableOperationId, name: str, cache_key: tuple[object, ...]) -> str:
        """A tool call is named by its id, which stands in the recorded answer of the model, and all else by its number: the
        same on every replay, also where calls are made side by side. Some models use an id again in a later turn."""
        if isinstance(operation_id, ModelRequestId):
            return f"request {self._number('request')}"
        unit = name.partition("__")[2]
        context = next((part for part in cache_key if isinstance(part, RunContext)), None)
        if context and context.tool_call_id:
            unit = context.tool_name if isinstance(operation_id, ToolsetCallToolId) and context.tool_name else unit
            unit = f"{unit} {context.tool_call_id}"
            return self._call_key(unit, self._number(unit))
        return fitting(f"{unit} {self._number(unit)}", beside=self._call)

    def was_made(self, call: ToolCallPart) -> bool:
        """Has the journal this call, which is about to be made, already?"""
        unit = f"{call.tool_name} {call.tool_call_id}"
        key = self._call_key(unit, self._numbers.get(unit, 0) + 1)
        return f"{self._call}:{key}" in self._steps.journal.store.steps

    def _call_key(self, unit: str, number: int) -> str:
        return fitting(unit if number == 1 else f"{unit} {number}", beside=self._call)

    def _number(self, name: str) -> int:
        self._numbers[name] = self._numbers.get(name, 0) + 1
        return self._numbers[name]


async def _to_its_end(step: Coroutine[Any, Any, T]) -> T:
    """On a task of its own, for pydantic-ai cancels what runs beside a call that raises: half done, it would be repeated."""
    task = asyncio.ensure_future(step)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # its caller may be gone
    return await asyncio.shield(task)


def _context(cache_key: tuple[object, ...]) -> RunContext[Any]:
    return next(part for part in cache_key if isinstance(part, RunContext))


def _cost(operation_id: DurableOperationId, cache_key: tuple[object, ...], unit: Unit, limits: Limits) -> Cost | None:
    """What the unit may cost of what is limited; None: nothing."""
    if unit.tool:
        return Cost(tool_calls=1) if "tool_calls" in limits.measures else None
    if not isinstance(operation_id, ModelRequestId | ModelCompactMessagesId) or not limits.measures - {"tool_calls"}:
        return None
    model: Any = _context(cache_key).model
    if model.model_name == BUILTIN:
        return None
    asked: Any = cache_key
    if isinstance(operation_id, ModelRequestId):
        _, messages, model_settings, parameters, _ = asked
    else:
        request = asked[1]
        messages, model_settings = request.messages, request.model_settings
        parameters = request.model_request_parameters
    return worst_case(model, messages, model_settings, parameters, Prices(limits.prices))


class UnitConfig:
    """Which unit a model request or a call of a tool is."""

    def __init__(self, model_effect: Effect) -> None:
        self._model_effect = model_effect

    def base(self, role: OperationConfigRole, *, operation_id: DurableOperationId) -> Unit:
        return Unit(effect=self._model_effect if role == "model" else "idempotent")

    def for_tool(
        self, role: OperationConfigRole, *, operation_id: DurableOperationId, tool: Any, tool_name: str
    ) -> Unit | Literal[False]:
        if not isinstance(operation_id, ToolsetCallToolId):
            return Unit(effect="read")  # a validator of arguments
        policy = ToolPolicy.of(tool_name, tool.tool_def.metadata if tool else None)
        return Unit(effect=policy.effect, tool=tool_name, is_untrusted=policy.untrusted)


class Durability(BaseDurabilityCapability[Any]):
    """Attached to one run of an LLM agent. Also the gate of its tools: which it may use, and which ask first."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Wakeful",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    )

    def __init__(
        self,
        *,
        call: str,
        began: datetime,
        run_id: str,
        agent_name: str,
        model: Model,
        backend: StepBackend,
        approver: Approver,
        tools: frozenset[str] | None,
        taint: Callable[[], None],
    ) -> None:
        super().__init__(name=agent_name)
        self._model = model
        self._began = began
        self._run_id = f"{run_id}:{call}"
        self._approver = approver
        self._tools = tools
        self._taint = taint
        self._backend = backend
        self._results: dict[str, int] = {}

    def _bind_models(self, agent: AbstractAgent[Any, Any]) -> None:
        """The one model of this call: an agent need not name one itself."""
        self._models_by_id = {"default": self._model}

    @property
    def in_durable_context(self) -> bool:
        return True

    def get_durable_operation_backend(self) -> StepBackend:
        return self._backend

    def get_default_run_id(self) -> str:
        return self._run_id

    def get_default_conversation_id(self, run_id: str) -> str:
        return conversation_id_from_run_id(run_id)

    def get_model_settings(self) -> Callable[[RunContext[Any]], ModelSettings]:
        """The journal repeats a request, waits as long as its provider asks and counts: the provider's client does not,
        unless the agent's author says so."""

        def settings(ctx: RunContext[Any]) -> ModelSettings:
            is_said = "max_retries" in (ctx.model_settings or {})
            is_known = isinstance(ctx.model, Model) and "max_retries" not in ctx.model.unsupported_settings
            return ModelSettings(max_retries=0) if is_known and not is_said else ModelSettings()

        return settings

    async def get_run_start_time(self, run_id: str) -> datetime:
        return self._began

    async def prepare_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """No secret of the settings leaves the house, and no tool that a provider itself runs passes the cap. Under a budget
        of money or tokens the answer is bounded, so that no request can cost more than was reserved for it."""
        request = await super().prepare_model_request(ctx, request_context)
        model_settings = request.model_settings
        if (await self._backend.limits()).measures & {"usd", "tokens"}:
            bound = output_at_most(request.model, model_settings)
            model_settings = ModelSettings(**{**(model_settings or {}), "max_tokens": bound})
        return replace(
            request,
            messages=redacted_messages(request.messages),
            model_request_parameters=redacted_parameters(request.model_request_parameters, self._tools),
            model_settings=model_settings,
        )

    async def prepare_tools(self, ctx: RunContext[Any], tool_defs: list[ToolDefinition]) -> list[ToolDefinition]:
        return [self._approver.gated(tool) for tool in tool_defs if self._tools is None or tool.name in self._tools]

    async def after_tool_validate(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> dict[str, Any]:
        if tool_def.kind == "function" and not ctx.tool_call_approved:
            self._approver.require_decision(call)
        return args

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        return await self._approver.resolve(ctx, requests)

    async def wrap_tool_validate(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: RawToolArgs,
        handler: WrapToolValidateHandler,
    ) -> ValidatedToolArgs:
        if not _is_untrusted(tool_def):
            return await handler(args)
        try:
            return await handler(args)
        except (ModelRetry, ToolFailed) as error:  # of a validator, which may have asked a stranger
            raise type(error)(self._fenced_error(call, error.message)) from error

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """An untrusted tool taints the run before it begins, so that its step and the effects in it are tainted. The error that
        it gives the model instead of a result is fenced like one."""
        if not _is_untrusted(tool_def):
            return await handler(args)
        self._taint()
        try:
            return await handler(args)
        except (ModelRetry, ToolFailed) as error:
            raise type(error)(self._fenced_error(call, error.message)) from error
        except ValidationError as error:
            raise ModelRetry(self._fenced_error(call, str(error))) from error
        except ToolRetryError as error:
            part = error.tool_retry
            raise ToolRetryError(replace(part, content=self._fenced_error(call, part.content))) from error.__cause__
        except ToolFailedError as error:
            failed = error.tool_failed
            raise ToolFailedError(
                replace(failed, content=self._fenced_error(call, failed.content))
            ) from error.__cause__

    async def after_tool_execute(
        self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any, result: Any
    ) -> Any:
        """Permanent: the model goes round in circles."""
        told, times = self._counted(call, result)
        if times >= SAME_RESULTS:
            raise Permanent(
                f"the model called tool {call.tool_name!r} {times} times with the same arguments and got the same result each "
                "time; it goes round in circles, so the run ends here"
            )
        if not _is_untrusted(tool_def):
            return result
        self._taint()  # the result may be another's answer to a question of the tool, which has not begun then
        return fenced_return(result, self._mark(told, times))

    def _fenced_error(self, call: ToolCallPart, error: Any) -> str:
        self._taint()
        return fence(error, self._mark(*self._counted(call, {"error": error})))

    def _counted(self, call: ToolCallPart, result: Any) -> tuple[str, int]:
        """The call with its result as a text, and how often that came."""
        told = json.dumps([call.tool_name, call.args_as_dict(), result], sort_keys=True, default=repr)
        self._results[told] = self._results.get(told, 0) + 1
        return told, self._results[told]

    def _mark(self, told: str, times: int) -> str:
        """On a replay the same, and nothing that a stranger could have read in an earlier prompt."""
        return salted_hmac("agents.llm.fence", f"{self._run_id} {told} {times}", algorithm="sha256").hexdigest()[:16]


def _is_untrusted(tool: ToolDefinition) -> bool:
    return ToolPolicy.of(tool.name, tool.metadata).untrusted
