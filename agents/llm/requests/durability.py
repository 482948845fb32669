"""Pydantic-ai's extension point for durable execution, over the run's journal: each model request and discovery of tools is a
step. A replay gets the recorded results, so it sends no request and pays for nothing."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

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
    conversation_id_from_run_id,
)
from pydantic_ai.exceptions import ModelRetry, ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.settings import ModelSettings
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset

from agents.exceptions import Permanent
from agents.llm.context import LlmContext
from agents.llm.delegates import DELEGATES, Delegate
from agents.llm.door.leaves import guarded
from agents.llm.opening import Opened
from agents.llm.providers import hidden_tools
from agents.llm.requests.secrets import redacted_messages, redacted_parameters
from agents.llm.requests.step_backend import StepBackend
from agents.llm.strangers.fences import fence, fenced_return
from agents.llm.tools import ToolPolicy

# A model that calls the same tool with the same arguments, and gets the same result, this often is in a loop.
SAME_RESULTS = 3


class Durability(BaseDurabilityCapability[Any]):
    """Attached to one run of an LLM agent: its requests are steps, and so is what pydantic-ai asks around them. Calls of tools pass
    the door (`agents.llm.door.door`), which is outside of this."""

    engine_spec = DurabilityEngineSpec(
        engine_name="Wakeful",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=JSON_CODEC,
        toolset_lifecycles={"function": "enter-always", "mcp": "enter-in-durable-unit", "dynamic": "enter-never"},
    )

    def __init__(
        self, call: Opened, context: LlmContext, *, agent_name: str, model: Model, backend: StepBackend
    ) -> None:
        super().__init__(name=agent_name)
        self._model = model
        self._began = call.began
        self._run_id = f"{context.run_id}:{call.place}"
        self._tools = call.tools
        self._taint = context.taint
        self._backend = backend
        self._results: dict[str, int] = {}

    def _bind_models(self, agent: AbstractAgent[Any, Any]) -> None:
        """Set the model of this call: an agent need not name one itself."""
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
        """Turn off retries of the provider's client, unless the agent's author sets them: the journal repeats requests,
        obeys Retry-After and counts tries.
        """

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
        """Remove secrets of the settings from the request, and provider-run tools that the tool cap excludes."""
        request = await super().prepare_model_request(ctx, request_context)
        hidden_tools.require_none(self._model, request.model_settings)
        return replace(
            request,
            messages=redacted_messages(request.messages),
            model_request_parameters=redacted_parameters(request.model_request_parameters, self._tools),
        )

    def _register_toolsets(self, agent: AbstractAgent[Any, Any]) -> None:
        """Register the toolsets of the call, not those of the agent's constructor."""

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return toolset.visit_and_replace(self._in_steps)

    def _in_steps(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        """Discovery of tools and validators of arguments are steps. A toolset of plain functions without an id has no name for its
        validators: they run again on a replay."""
        if getattr(toolset, "sampling_model", None) is not None:
            raise Permanent(
                f"toolset {toolset.label}: its server would ask the model of sampling_model= past the journal and the budgets of the run. "
                "Leave it out"
            )
        is_nameless = isinstance(toolset, FunctionToolset) and toolset.id is None
        is_delegate = isinstance(toolset, Delegate)  # a call of it is no step
        return guarded(toolset if is_nameless or is_delegate else self._wrap_and_register_leaf(toolset))

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
        except (ModelRetry, ToolFailed) as error:  # the output of a validator, which may contain untrusted data
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
        """Fence the error that an untrusted tool returns instead of a result."""
        if not _is_untrusted(tool_def):
            return await handler(args)
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
        """Raises Permanent if the model repeats the same call with the same result too often."""
        policy = ToolPolicy.of_tool(tool_def)
        told, times = self._counted(call, result)
        if times >= SAME_RESULTS and not policy.polled:
            raise Permanent(
                f"the model called tool {call.tool_name!r} {times} times with the same arguments and got the same result each "
                "time; it goes round in circles, so the run ends here"
            )
        if (tool_def.metadata or {}).get(DELEGATES):
            return fenced_return(
                result, self._mark(told, times)
            )  # the output of a delegate: the run already has its taint
        if policy.trusted:
            return result
        self._taint()  # the result may be another's answer to a question of the tool, which has not begun then
        return fenced_return(result, self._mark(told, times))

    def _fenced_error(self, call: ToolCallPart, error: Any) -> str:
        self._taint()
        return fence(error, self._mark(*self._counted(call, {"error": error})))

    def _counted(self, call: ToolCallPart, result: Any) -> tuple[str, int]:
        """The call with its result as a text, and how often it occurred."""
        told = json.dumps([call.tool_name, call.args_as_dict(), result], sort_keys=True, default=repr)
        self._results[told] = self._results.get(told, 0) + 1
        return told, self._results[told]

    def _mark(self, told: str, times: int) -> str:
        """The mark of a fence: the same on a replay, and not predictable from earlier prompts."""
        return salted_hmac("agents.llm.fence", f"{self._run_id} {told} {times}", algorithm="sha256").hexdigest()[:16]


def _is_untrusted(tool: ToolDefinition) -> bool:
    return not ToolPolicy.of_tool(tool).trusted
