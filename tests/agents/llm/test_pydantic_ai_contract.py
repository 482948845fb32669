"""What `agents.llm` relies on of pydantic-ai, beyond its documented API: an upgrade that changes it fails here first, and by
name. The keys of steps are persisted: a run that began before an upgrade goes on after it."""

import asyncio
import inspect
import threading
from concurrent.futures import Executor, Future
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import RunContext, _utils, durable_exec
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.durable_exec import (
    JSON_CODEC,
    BaseDurabilityCapability,
    CallToolResult,
    JournalOperationNamer,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.durable_exec._toolset import unwrap_tool_call_result, wrap_tool_call_result
from pydantic_ai.exceptions import ModelHTTPError, ModelRetry
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.toolsets import FunctionToolset
from pydantic_ai.usage import RequestUsage

from agents.agent import Agent
from agents.testing import Journal, run_agent

pytestmark = pytest.mark.django_db


def test_the_names_of_the_extension_point_exist() -> None:
    for name in (
        "BaseDurabilityCapability",
        "DurabilityEngineSpec",
        "DurableOperationId",
        "JournalCallableOperationBackend",
        "ModelCompactMessagesId",
        "OperationConfigRole",
        "conversation_id_from_run_id",
        "record_durable_unit",
        "replay_scope",
    ):
        assert hasattr(durable_exec, name), name


def test_operations_have_the_names_that_keys_are_made_of() -> None:
    name = JournalOperationNamer("sums").operation_name

    assert name(ModelRequestId(model_name="gpt-4o")) == "sums__model.request"
    assert name(ToolsetGetToolsId("dynamic", toolset_id="t")) == "sums__dynamic_toolset__t.get_tools"
    assert name(ToolsetGetToolsId("mcp", toolset_id="t")) == "sums__mcp_server__t.get_tools"
    assert name(ToolsetCallToolId("mcp", toolset_id="t")) == "sums__mcp_server__t.call_tool"
    assert name(ToolsetValidateToolArgumentsId("function", toolset_id="t")) == "sums__function_toolset__t.validate_args"


def test_a_backend_executes_with_the_known_parameters() -> None:
    execute = inspect.signature(durable_exec.CallableOperationBackend.execute)

    assert list(execute.parameters) == ["self", "operation_id", "name", "body", "cache_key", "config"]


def test_the_result_of_a_tool_call_is_recorded_with_its_kind() -> None:
    async def refuses() -> Any:
        raise ModelRetry("again")

    async def gives() -> Any:
        return 7

    refused: Any = asyncio.run(wrap_tool_call_result(refuses()))
    given: Any = asyncio.run(wrap_tool_call_result(gives()))

    assert (refused.kind, given.kind) == ("model_retry", "tool_return")
    recorded = JSON_CODEC.dump(CallToolResult, given)
    assert (recorded, unwrap_tool_call_result(JSON_CODEC.load(CallToolResult, recorded))) == (
        {"result": 7, "kind": "tool_return"},
        7,
    )


def test_the_toolsets_of_one_call_are_wrapped_when_it_begins() -> None:
    assert list(inspect.signature(BaseDurabilityCapability.get_wrapper_toolset).parameters) == ["self", "toolset"]
    assert list(inspect.signature(BaseDurabilityCapability._wrap_and_register_leaf).parameters) == ["self", "ts"]
    assert list(inspect.signature(BaseDurabilityCapability._register_toolsets).parameters) == ["self", "agent"]


def test_the_model_of_a_call_is_bound_by_one_method() -> None:
    assert list(inspect.signature(BaseDurabilityCapability._bind_models).parameters) == ["self", "agent"]
    assert list(inspect.signature(BaseDurabilityCapability._find_model_id).parameters) == ["self", "model"]


def test_the_codec_gives_back_what_it_took() -> None:
    response = ModelResponse(
        parts=[TextPart("hello"), ToolCallPart("add", {"a": 1}, "call-1")],
        usage=RequestUsage(input_tokens=7, output_tokens=2),
        model_name="gpt-4o",
        provider_name="openai",
    )

    recorded = JSON_CODEC.dump(ModelResponse, response)

    assert JSON_CODEC.load(ModelResponse, recorded) == response
    assert (recorded["usage"]["input_tokens"], recorded["parts"][1]["tool_call_id"]) == (7, "call-1")


def test_functions_run_in_their_own_thread_while_threads_are_disabled() -> None:
    async def ask() -> Any:
        with _utils.disable_threads():
            return await _utils.run_in_executor(threading.get_ident)

    assert asyncio.run(ask()) == threading.get_ident()


def test_plain_functions_go_to_the_executor_that_is_in_use() -> None:
    class Marked(Executor):
        is_running = False

        def submit(self, act: Any, /, *arguments: Any, **named: Any) -> Any:
            done: Future[Any] = Future()
            self.is_running = True
            done.set_result(act(*arguments, **named))
            self.is_running = False
            return done

    executor, seen = Marked(), []
    llm = LlmAgent(scripted([ToolCallPart("look", {}, "call-1")], [TextPart("seen")]))

    @llm.tool_plain
    def look() -> None:
        seen.append(executor.is_running)

    with LlmAgent.using_thread_executor(executor):
        asyncio.run(llm.run("look"))

    assert seen == [True]


def test_a_capability_of_one_run_is_bound_to_its_agent() -> None:
    class Bound(AbstractCapability[Any]):
        def for_agent(self, agent: Any) -> AbstractCapability[Any]:
            bound.append(agent)
            return self

    bound: list[Any] = []
    llm = LlmAgent(scripted([TextPart("hello")]))

    asyncio.run(llm.run("hello", capabilities=[Bound()]))

    assert bound == [llm]


def test_an_error_shows_the_wait_that_its_provider_requests() -> None:
    assert ModelHTTPError(429, "gpt-4o", headers={"retry-after": "7"}).retry_after == 7


class Verdict(BaseModel):
    urgent: bool


def test_the_keys_of_steps_are_persisted_and_stay() -> None:
    """If this fails, runs that are under way do not fit their journals after the upgrade."""
    llm = LlmAgent(
        scripted(
            [ToolCallPart("add", {"a": 1}, "call-1"), ToolCallPart("double", {"a": 1}, "call-2")],
            [ToolCallPart("add", {"a": 2}, "call-1")],
            [ToolCallPart("final_result", {"urgent": True}, "call-3")],
        ),
        name="sums",
        output_type=Verdict,
    )

    def check(ctx: RunContext[Any], a: int) -> None:
        pass

    @llm.tool_plain(args_validator=check)
    def add(a: int) -> int:
        return a

    @llm.toolset(id="more")
    def more(ctx: RunContext[Any]) -> FunctionToolset[Any]:
        return FunctionToolset([double])

    def double(a: int) -> int:
        return 2 * a

    journal = Journal()
    run_agent(Agent(name="asker", body=lambda run: run.llm(llm, "go").output.urgent, durable=True), journal=journal)

    assert sorted(journal.keys) == [
        "llm sums#1",
        "llm sums#1:add call-1",
        "llm sums#1:add call-1 2",
        "llm sums#1:double call-2",
        "llm sums#1:dynamic_toolset__more.get_tools 1",
        "llm sums#1:dynamic_toolset__more.get_tools 2",
        "llm sums#1:dynamic_toolset__more.get_tools 3",
        "llm sums#1:function_toolset__<agent>.validate_args call-1",
        "llm sums#1:function_toolset__<agent>.validate_args call-1 2",
        "llm sums#1:request 1",
        "llm sums#1:request 2",
        "llm sums#1:request 3",
    ]


def scripted(*turns: Any) -> FunctionModel:
    def answer(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=turns[sum(isinstance(message, ModelResponse) for message in messages)])

    return FunctionModel(answer)
