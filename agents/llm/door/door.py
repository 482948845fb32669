"""The door: every call of a tool passes it, whatever toolset, capability, server or agent the tool comes from, and so does every
call of an output function. In this order: recorded entry → tool cap → taint → approval bound to the validated arguments →
effect → execution → record. What cannot pass it is refused by name."""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai import Agent, ApprovalRequired, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, BatchModelRequests, ModelFallback, SelectModel
from pydantic_ai.capabilities.abstract import CapabilityOrdering, WrapOutputProcessHandler, leaf_capabilities
from pydantic_ai.capabilities.wrapper import WrapperCapability
from pydantic_ai.durable_exec import JSON_CODEC, record_durable_unit
from pydantic_ai.durable_exec._toolset import guard_run_context
from pydantic_ai.exceptions import CallDeferred, ModelRetry
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from agents.exceptions import Permanent
from agents.llm.context import LlmContext
from agents.llm.delegates import DELEGATES, delegating
from agents.llm.door.approvals import Approver, said
from agents.llm.door.approved_output import OUTPUT, ApprovedOutput
from agents.llm.door.external import ExternalCalls, is_answering
from agents.llm.door.leaves import guarded, passing
from agents.llm.door.rules import Rules, ToolCall
from agents.llm.door.shown_arguments import as_the_model_gives_them, of_output
from agents.llm.door.tool_steps import ToolSteps
from agents.llm.opening import Opened
from agents.llm.outputs import OutputFunction
from agents.llm.tools import ToolPolicy

CHOOSES_MODEL = (
    "run.llm asks one model, whose requests it records and meters: give the agent that model, a "
    "pydantic_ai.models.fallback.FallbackModel, or set WAKEFUL_MODEL_FALLBACKS"
)
REFUSED: dict[type[AbstractCapability[Any]], str] = {
    ModelFallback: CHOOSES_MODEL,
    SelectModel: CHOOSES_MODEL,
    BatchModelRequests: "run.llm asks by one request at a time, which it records: a batch would outlive its step. Leave it out",
}

Execute = Callable[[RunContext[Any]], Awaitable[Any]]
HandOver = Callable[[str, Agent[Any, Any], str, RunContext[Any]], Awaitable[Any]]


class Door(AbstractCapability[Any]):
    """The door of one call of run.llm. `hand_over` runs another agent inside this call, under a key of its own."""

    def __init__(
        self,
        context: LlmContext,
        opened: Opened,
        steps: ToolSteps,
        approver: Approver,
        outputs: dict[str, OutputFunction],
        hand_over: HandOver,
    ) -> None:
        self._steps = steps
        self._approver = approver
        self._outputs = outputs
        self._hand_over = hand_over
        self._rules = Rules(context, opened, steps, approver)
        self._external = ExternalCalls(self._rules, steps, approver, opened.mark)
        self._always_asks: set[str] = set()
        self.last_look = ApprovedOutput(approver)
        for name in outputs:
            self._rules.require_allowed("output function", name)

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost", wraps=(AbstractCapability,))

    async def before_run(self, ctx: RunContext[Any]) -> None:
        for capability in _capabilities(ctx):
            for refused, why in REFUSED.items():
                if isinstance(capability, refused):
                    raise Permanent(f"capability {refused.__name__}: {why}")

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        self._rules.judge_answer(request_context.model_request_parameters, response)
        return response

    # Tools

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _Passage(toolset.visit_and_replace(guarded), self)

    def tools_of(self, tools: dict[str, ToolsetTool[Any]]) -> dict[str, ToolsetTool[Any]]:
        """The tools that the model may see. A tool that always needs approval gets it here, like the others."""
        return {name: self._at_the_door(tool) for name, tool in tools.items() if self._rules.allows(tool.tool_def)}

    async def call(
        self, tool: ToolDefinition, arguments: dict[str, Any], ctx: RunContext[Any], execute: Execute
    ) -> Any:
        if self._steps.step:
            raise Permanent(
                f"tool {tool.name!r} is called inside step {self._steps.step!r}: a step cannot contain steps. Give the model this "
                "tool itself"
            )
        self._rules.require_allowed_tool(tool)
        call = ToolCall(
            name=tool.name,
            id=ctx.tool_call_id or "",
            policy=ToolPolicy.of_tool(tool),
            tool=tool,
            always_asks=tool.name in self._always_asks,
        )
        if instead := await self._approved(call, tool, arguments, ctx):
            record_durable_unit(executed=False)
            return instead
        hands_over = bool((tool.metadata or {}).get(DELEGATES))
        if not (hands_over and call.policy.trusted):  # the output of another agent may quote untrusted data
            self._rules.judge_result(call)
        if hands_over:
            return await self._handed_over(call, ctx, execute)
        # Inside a step, what a tool enqueues or cancels would be lost on a replay.
        in_step = guard_run_context(ctx, unit_noun="step", container_noun="run")
        return await self._steps.call(
            call.name, call.id, call.policy, arguments, lambda: execute(in_step), always_asks=call.always_asks
        )

    async def _approved(
        self, call: ToolCall, tool: ToolDefinition, arguments: dict[str, Any], ctx: RunContext[Any]
    ) -> str:
        """Empty: the call is approved or needs no approval; else the answer for the model. ApprovalRequired: a person must
        approve it first.
        """
        why = self._rules.why(call, arguments, ctx)
        shown = as_the_model_gives_them(arguments, tool.parameters_json_schema)
        if not ctx.tool_call_approved:
            self._approver.wants(call.name, call.id, shown, why or "")
            if why is None:
                return ""
            record_durable_unit(executed=False)  # nothing was called: no span of a call
            raise ApprovalRequired
        is_made = self._steps.is_made(call.name, call.id)
        instead = await self._approver.use(
            call.name, call.id, shown, is_made=is_made, why=why or "", expires=call.policy.expires
        )
        if instead is None:
            raise Permanent(
                f"the call {call.id!r} of tool {call.name!r} is approved, and no person has seen it: leave out what "
                "else approves it (deferred_tool_results, a handler of deferred calls); run.llm asks"
            )
        return instead

    async def _handed_over(self, call: ToolCall, ctx: RunContext[Any], execute: Execute) -> Any:
        key = self._steps.take(call.name, call.id)
        await self._steps.charge(key, {"tool": call.name, "call": call.id})
        with delegating(lambda agent, task, context: self._hand_over(key, agent, task, context)):
            return await execute(ctx)

    # Output functions

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any, handler: WrapOutputProcessHandler
    ) -> Any:
        if not output_context.has_function or ctx.partial_output:
            return await handler(output)
        name = output_context.function_name or next(iter(self._outputs), "")
        function = self._outputs[name]
        called = output_context.tool_call
        call = ToolCall(name=name, id=called.tool_call_id if called else OUTPUT, policy=function.policy)
        tool = output_context.tool_def
        arguments = of_output(output, tool.parameters_json_schema if tool else {})
        why = self._rules.why(call, arguments, ctx)
        if why is not None:
            await self._require_approval(call, arguments, why)
            if not self._steps.is_made(name, call.id):
                self._approver.approve_output(call.id, output)

        async def process() -> Any:
            return JSON_CODEC.dump(function.returns, await handler(output))

        recorded = await self._steps.call(name, call.id, function.policy, arguments, process)
        return JSON_CODEC.load(function.returns, recorded)

    async def _require_approval(self, call: ToolCall, arguments: dict[str, Any], why: str) -> None:
        """ModelRetry: the person denied the output or wants another; its text is for the model."""
        is_made = self._steps.is_made(call.name, call.id)
        try:
            answer = await self._approver.decide(call.name, call.id, arguments, why, call.policy.expires)
        except ValueError as error:
            raise ModelRetry(f"A person must approve this output, but {error}.") from error
        if answer.decision == "edited":
            raise ModelRetry(f"A person wants this output instead: {answer.arguments}")
        if not answer:
            raise ModelRetry(said(answer))
        if not is_made:
            self._approver.require_shown(call.name, call.id, answer, arguments)

    # Deferred calls

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Run before all other handlers: none of them may answer for a person, and their answer to an external call is
        a step.
        """
        if is_answering():
            return None
        results = await self._approver.resolve(ctx, requests)
        if _has_handler(ctx):
            for call in requests.calls:
                if requests.kind(call.tool_call_id) == "external":
                    with suppress(CallDeferred):  # no handler answers it, so it stays in the requests
                        results.calls[call.tool_call_id] = await self._external.answer(ctx, requests, call)
        return results

    def _at_the_door(self, tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
        if tool.tool_def.kind != "unapproved":
            return tool
        self._always_asks.add(tool.tool_def.name)
        return replace(tool, tool_def=replace(tool.tool_def, kind="function"))


def _capabilities(ctx: RunContext[Any]) -> Iterator[AbstractCapability[Any]]:
    """The capabilities of the call, without those that only wrap another."""
    root = ctx.root_capability
    for capability in leaf_capabilities(root) if root is not None else []:
        while isinstance(capability, WrapperCapability):
            capability = capability.wrapped
        yield capability


def _has_handler(ctx: RunContext[Any]) -> bool:
    neither = (AbstractCapability.handle_deferred_tool_calls, Door.handle_deferred_tool_calls)
    return any(type(capability).handle_deferred_tool_calls not in neither for capability in _capabilities(ctx))


@dataclass
class _Passage(WrapperToolset[Any]):
    """A wrapper of all toolsets of the call."""

    door: Door

    async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
        return self.door.tools_of(await self.wrapped.get_tools(ctx))

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        async def execute(ctx: RunContext[Any]) -> Any:
            with passing(tool, tool_args if ctx.tool_call_approved else None):
                return await self.wrapped.call_tool(name, tool_args, ctx, tool)

        return await self.door.call(tool.tool_def, tool_args, ctx, execute)
