"""The door: every call of a tool passes it, whatever toolset, capability, server or agent the tool comes from, and so does every
call of an output function. In this order: recorded entry → tool cap → taint → approval bound to the validated arguments →
effect → execution → record. What cannot pass it is refused by name."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from django.utils.crypto import salted_hmac
from pydantic_ai import Agent, ApprovalRequired, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, BatchModelRequests, ModelFallback, SelectModel
from pydantic_ai.capabilities.abstract import CapabilityOrdering, WrapOutputProcessHandler, leaf_capabilities
from pydantic_ai.capabilities.wrapper import WrapperCapability
from pydantic_ai.durable_exec import JSON_CODEC, record_durable_unit
from pydantic_ai.durable_exec._toolset import guard_run_context
from pydantic_ai.exceptions import CallDeferred, ModelRetry, ToolFailed
from pydantic_ai.messages import (
    BaseToolReturnPart,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    ToolCallPart,
    ToolsetInstructionSource,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset, WrapperToolset
from pydantic_ai.toolsets.abstract import ToolsetTool

from agents.exceptions import Permanent
from agents.llm.delegates import DELEGATES, delegating
from agents.llm.door.approvals import Approver, said
from agents.llm.door.approved_output import OUTPUT, ApprovedOutput
from agents.llm.door.danger import danger_of
from agents.llm.door.leaves import guarded, passing
from agents.llm.door.shown_arguments import as_json, as_the_model_gives_them, of_output
from agents.llm.door.tool_steps import ToolSteps
from agents.llm.outputs import OutputFunction
from agents.llm.strangers.addresses import without
from agents.llm.strangers.fences import fenced_answer
from agents.llm.tools import HOSTS, OF_THE_FRAMEWORK, ToolPolicy, of_mcp

# Native tools whose results are the model's own. All others read untrusted data.
OF_THE_MODEL = {"image_generation", "tool_search", "advisor"}
CHOOSES_MODEL = (
    "run.llm asks one model, whose requests it records and meters: give the agent that model, a "
    "pydantic_ai.models.fallback.FallbackModel, or set WAKEFUL_MODEL_FALLBACKS"
)
REFUSED: dict[type[AbstractCapability[Any]], str] = {
    ModelFallback: CHOOSES_MODEL,
    SelectModel: CHOOSES_MODEL,
    BatchModelRequests: "run.llm asks by one request at a time, which it records: a batch would outlive its step. Leave it out",
}

_answering: ContextVar[bool] = ContextVar("answering", default=False)  # do handlers answer a call, within its step?

Execute = Callable[[RunContext[Any]], Awaitable[Any]]
HandOver = Callable[[str, Agent[Any, Any], str, RunContext[Any]], Awaitable[Any]]


class Door(AbstractCapability[Any]):
    """The door of one call of run.llm. `tools`: the names of the tools that it may use, None for all. `hand_over` runs
    another agent inside this call, under a key of its own.
    """

    def __init__(
        self,
        *,
        steps: ToolSteps,
        approver: Approver,
        tools: frozenset[str] | None,
        outputs: dict[str, OutputFunction],
        is_tainted: Callable[[], bool],
        taint: Callable[[], None],
        prompt: str,
        from_strangers: Sequence[Any],
        mark: str,
        hand_over: HandOver,
    ) -> None:
        self._steps = steps
        self._approver = approver
        self.last_look = ApprovedOutput(approver)
        self._tools = tools
        self._outputs = outputs
        self._is_tainted = is_tainted
        self._taint = taint
        self._prompt = prompt
        self._not_of_the_author = list(from_strangers)  # untrusted texts that instructions may contain
        self._mark = mark  # of fences
        self._hand_over = hand_over
        self._trusted_calls: set[tuple[str, str]] = set()  # ids within this call of run.llm: some models reuse an id
        self._always_asks: set[str] = set()
        for name in outputs:
            self._require_allowed("output function", name)

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="outermost", wraps=(AbstractCapability,))

    async def before_run(self, ctx: RunContext[Any]) -> None:
        root = ctx.root_capability
        for capability in leaf_capabilities(root) if root is not None else []:
            while isinstance(capability, WrapperCapability):
                capability = capability.wrapped
            for refused, why in REFUSED.items():
                if isinstance(capability, refused):
                    raise Permanent(f"capability {refused.__name__}: {why}")

    async def after_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Taint the run if a provider's own tool may have read untrusted data: not every answer shows that one was
        used.
        """
        for part in request_context.model_request_parameters.instruction_parts or ():
            is_toolsets = part.id is not None and isinstance(part.id.source, ToolsetInstructionSource)
            if is_toolsets and part.content not in self._not_of_the_author:
                self._not_of_the_author.append(part.content)  # such as an MCP server
        offered = {tool.kind for tool in request_context.model_request_parameters.native_tools}
        used = any(
            isinstance(part, NativeToolCallPart | NativeToolReturnPart) and part.tool_name not in OF_THE_MODEL
            for part in response.parts
        )
        if self._tools is not None:
            offered &= self._tools
        if used or offered - OF_THE_MODEL:
            self._taint()
        return response

    # Tools

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _Passage(toolset.visit_and_replace(guarded), self)

    def tools_of(self, tools: dict[str, ToolsetTool[Any]]) -> dict[str, ToolsetTool[Any]]:
        """The tools that the model may see. A tool that always needs approval gets it here, like the others."""
        return {name: self._at_the_door(tool) for name, tool in tools.items() if self._allows(tool.tool_def)}

    async def call(
        self, tool: ToolDefinition, arguments: dict[str, Any], ctx: RunContext[Any], execute: Execute
    ) -> Any:
        name, call = tool.name, ctx.tool_call_id or ""
        if self._steps.step:
            raise Permanent(
                f"tool {name!r} is called inside step {self._steps.step!r}: a step cannot contain steps. Give the model this tool itself"
            )
        if not self._allows(tool):
            self._require_allowed("tool", name)
        policy = ToolPolicy.of_tool(tool)
        asks = self._why(name, call, policy, arguments, ctx, tool, always=name in self._always_asks)
        shown = as_the_model_gives_them(arguments, tool.parameters_json_schema)
        if not ctx.tool_call_approved:
            self._approver.wants(name, call, shown, asks or "")
            if asks is not None:
                record_durable_unit(executed=False)  # nothing was called: no span of a call
                raise ApprovalRequired
        else:
            is_made = self._steps.is_made(name, call)
            instead = await self._approver.use(
                name, call, shown, is_made=is_made, why=asks or "", expires=policy.expires
            )
            if instead:
                record_durable_unit(executed=False)
                return instead
            if instead is None:
                raise Permanent(
                    f"the call {call!r} of tool {name!r} is approved, and no person has seen it: leave out what "
                    "else approves it (deferred_tool_results, a handler of deferred calls); run.llm asks"
                )
        hands_over = bool((tool.metadata or {}).get(DELEGATES))
        if not policy.trusted:
            self._taint()
        elif not hands_over:  # the output of another agent may quote untrusted data
            self._trusted_calls.add((name, call))
        if hands_over:
            key = self._steps.take(name, call)
            await self._steps.charge(key, {"tool": name, "call": call})
            with delegating(lambda agent, task, context: self._hand_over(key, agent, task, context)):
                return await execute(ctx)
        # Inside a step, what a tool enqueues or cancels would be lost on a replay.
        in_step = guard_run_context(ctx, unit_noun="step", container_noun="run")
        return await self._steps.call(name, call, policy, arguments, lambda: execute(in_step))

    # Output functions

    async def wrap_output_process(
        self, ctx: RunContext[Any], *, output_context: OutputContext, output: Any, handler: WrapOutputProcessHandler
    ) -> Any:
        if not output_context.has_function or ctx.partial_output:
            return await handler(output)
        name = output_context.function_name or next(iter(self._outputs), "")
        function = self._outputs[name]
        called = output_context.tool_call
        call = called.tool_call_id if called else OUTPUT
        tool = output_context.tool_def
        arguments = of_output(output, tool.parameters_json_schema if tool else {})
        why = self._why(name, call, function.policy, arguments, ctx)
        if why is not None:
            await self._require_approval(name, call, arguments, why, function.policy)
            if not self._steps.is_made(name, call):
                self._approver.approve_output(call, output)

        async def process() -> Any:
            return JSON_CODEC.dump(function.returns, await handler(output))

        recorded = await self._steps.call(name, call, function.policy, arguments, process)
        return JSON_CODEC.load(function.returns, recorded)

    async def _require_approval(
        self, name: str, call: str, arguments: dict[str, Any], why: str, policy: ToolPolicy
    ) -> None:
        """ModelRetry: the person denied the output or wants another; its text is for the model."""
        is_made = self._steps.is_made(name, call)
        try:
            answer = await self._approver.decide(name, call, arguments, why, policy.expires)
        except ValueError as error:
            raise ModelRetry(f"A person is asked before this output, but {error}.") from error
        if answer.decision == "edited":
            raise ModelRetry(f"A person wants this output instead: {answer.arguments}")
        if not answer:
            raise ModelRetry(said(answer))
        if not is_made:
            self._approver.require_shown(name, call, answer, arguments)

    # Deferred calls

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[Any], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Run before all other handlers: none of them may answer for a person, and their answer to an external call is
        a step.
        """
        if _answering.get():
            return None
        results = await self._approver.resolve(ctx, requests)
        if _has_handler(ctx):
            for call in requests.calls:
                if requests.kind(call.tool_call_id) == "external":
                    await self._carry_out(ctx, requests, call, results)
        return results

    async def _carry_out(
        self, ctx: RunContext[Any], requests: DeferredToolRequests, call: ToolCallPart, results: DeferredToolResults
    ) -> None:
        """Let the handlers carry out an external call; one that none of them answers stays in the requests."""
        name, number, arguments = call.tool_name, call.tool_call_id, call.args_as_dict()
        tool = ctx.tool_manager.get_tool_def(name) if ctx.tool_manager else None
        if tool and not self._allows(tool):
            self._require_allowed("tool", name)
        policy = ToolPolicy.of_tool(tool) if tool else ToolPolicy()
        # A tool that defers its call has already passed the door.
        if (
            tool
            and tool.kind == "external"
            and (why := self._why(name, number, policy, arguments, ctx, tool)) is not None
        ):
            try:
                answer = await self._approver.decide(name, number, arguments, why, policy.expires)
            except ValueError as error:
                results.calls[number] = ModelRetry(f"A person is asked before this call, but {error}.")
                return
            if not answer:
                results.calls[number] = said(answer)
                return
            if answer.decision == "edited":
                if not isinstance(answer.arguments, dict):
                    results.calls[number] = ModelRetry(f"A person wants these arguments instead: {answer.arguments}")
                    return
                arguments = answer.arguments
            elif not self._steps.is_made(name, number):
                self._approver.require_shown(name, number, answer, arguments)
        if policy.trusted:
            self._trusted_calls.add((name, number))
        else:
            self._taint()
        one = DeferredToolRequests(
            calls=[replace(call, args=arguments)],
            metadata={key: value for key, value in requests.metadata.items() if key == number},
        )
        in_step = guard_run_context(ctx, unit_noun="step", container_noun="run")
        try:
            results.calls[number] = await self._steps.call(
                name, number, policy, arguments, lambda: _answer(in_step, one)
            )
        except CallDeferred:
            return
        except (ModelRetry, ToolFailed) as refusal:
            results.calls[number] = refusal
        if not policy.trusted:
            mark = salted_hmac("agents.llm.fence", f"{self._mark} {number}", algorithm="sha256").hexdigest()[:16]
            results.calls[number] = fenced_answer(results.calls[number], mark)

    # Rules

    def _why(
        self,
        name: str,
        call: str,
        policy: ToolPolicy,
        arguments: dict[str, Any],
        ctx: RunContext[Any],
        tool: ToolDefinition | None = None,
        *,
        always: bool = False,
    ) -> str | None:
        """Why this call needs approval; None: it needs none. A call that a person decided about stays bound to that
        decision; a recorded call without a question needed none.
        """
        if self._approver.was_asked(name, call):
            return ""
        if self._steps.has(name, call):
            return None
        danger = ""
        if self._is_tainted():
            danger = danger_of(policy, as_json(arguments), lambda: self._trusted_texts(ctx, tool))
        return danger or ("" if always else None)

    def _trusted_texts(self, ctx: RunContext[Any], tool: ToolDefinition | None) -> Iterator[str]:
        """The texts that no stranger wrote: the prompt and instructions of this call, descriptions of tools that are
        not from MCP servers, and results of trusted tools.
        """
        yield self._prompt
        if tool:
            if not of_mcp(tool.metadata) or ToolPolicy.of_tool(tool).trusted:
                yield tool.description or ""
            hosts = (tool.metadata or {}).get(HOSTS, ())
            yield from hosts() if callable(hosts) else hosts
        for message in ctx.messages:
            if isinstance(message, ModelRequest):
                yield without(message.instructions or "", self._not_of_the_author)
                for part in message.parts:
                    if isinstance(part, SystemPromptPart):
                        yield without(part.content, self._not_of_the_author)
                    elif (
                        isinstance(part, BaseToolReturnPart)
                        and (part.tool_name, part.tool_call_id) in self._trusted_calls
                    ):
                        yield part.model_response_str()

    def _allows(self, tool: ToolDefinition) -> bool:
        return self._tools is None or tool.name in self._tools or tool.tool_kind in OF_THE_FRAMEWORK

    def _require_allowed(self, what: str, name: str) -> None:
        if self._tools is not None and name not in self._tools:
            allowed = ", ".join(sorted(self._tools)) or "none"
            raise Permanent(f"{what} {name!r} is outside of the tool cap of this run, which allows: {allowed}")

    def _at_the_door(self, tool: ToolsetTool[Any]) -> ToolsetTool[Any]:
        if tool.tool_def.kind != "unapproved":
            return tool
        self._always_asks.add(tool.tool_def.name)
        return replace(tool, tool_def=replace(tool.tool_def, kind="function"))


def _has_handler(ctx: RunContext[Any]) -> bool:
    root = ctx.root_capability
    for capability in leaf_capabilities(root) if root is not None else []:
        while isinstance(capability, WrapperCapability):
            capability = capability.wrapped
        handle = type(capability).handle_deferred_tool_calls
        if handle not in (AbstractCapability.handle_deferred_tool_calls, Door.handle_deferred_tool_calls):
            return True
    return False


async def _answer(ctx: RunContext[Any], request: DeferredToolRequests) -> Any:
    """The answer of the other handlers to this one call. CallDeferred: none of them answered."""
    token = _answering.set(True)
    try:
        root = ctx.root_capability
        given = await root.handle_deferred_tool_calls(ctx, requests=request) if root is not None else None
    finally:
        _answering.reset(token)
    [call] = request.calls
    if given is None or call.tool_call_id not in given.calls:
        raise CallDeferred
    answer = given.calls[call.tool_call_id]
    if isinstance(answer, ModelRetry | ToolFailed):
        raise answer
    return answer


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
