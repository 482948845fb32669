"""What a builder on pydantic-ai 2.x expects, inside run.llm: the table of docs/llm.md, as far as no other file has the row. Each body
sleeps behind the call, so that a replay follows, which asks no model and calls no tool."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import (
    BinaryContent,
    BinaryImage,
    CachePoint,
    CallDeferred,
    DeferredToolResults,
    DocumentUrl,
    ImageUrl,
    ModelRetry,
    NativeOutput,
    PromptedOutput,
    RunContext,
    Tool,
    ToolDefinition,
    ToolOutput,
    ToolReturn,
    UsageLimits,
)
from pydantic_ai.capabilities import BatchModelRequests, Hooks, ProcessEventStream, ProcessHistory
from pydantic_ai.messages import (
    FilePart,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.profiles import ModelProfile
from pydantic_ai.tools import DeferredToolRequests
from pydantic_ai.toolsets import ExternalToolset

from runs.models import Run
from tests.support.durable import Lab, lab
from tests.support.llm import Turns

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]
PNG = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
Asks = Callable[[Any], Any]


class Verdict(BaseModel):
    urgent: bool
    why: str


class Always:
    """A model that always gives this answer; `asked` counts its requests."""

    def __init__(self, *parts: Any, **how: Any) -> None:
        self.parts, self.asked = parts, 0
        self.model = FunctionModel(self.answer, model_name="said", **how)

    def answer(self, messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        self.asked += 1
        if info.output_tools:
            call = ToolCallPart(info.output_tools[0].name, {"urgent": True, "why": "w"}, "out")
            return ModelResponse(parts=[call])
        return ModelResponse(parts=list(self.parts))

    def agent(self, **how: Any) -> LlmAgent[Any, Any]:
        return LlmAgent(self.model, **{"name": "t", **how})


def replayed(lab: Lab, ask: Asks) -> Run:
    def body(run: Any) -> Any:
        result = ask(run)
        run.sleep("1h")
        return result

    return lab.later(lab.run(body))


def ok(run: Run) -> Any:
    assert (run.status, run.error) == ("succeeded", "")
    return run.result


@pytest.mark.parametrize("mode", [ToolOutput, NativeOutput, PromptedOutput, list], ids=lambda mode: mode.__name__)
def test_a_structured_output_is_validated_and_replayed(lab: Lab, mode: Any) -> None:
    kind: Any = [Verdict, str] if mode is list else mode(Verdict)
    model = Always(TextPart('{"urgent": true, "why": "w"}'))

    def ask(run: Any) -> Any:
        output = run.llm(model.agent(output_type=kind), "q").output
        assert isinstance(output, Verdict)
        return output.why

    assert (ok(replayed(lab, ask)), model.asked) == ("w", 1)


@pytest.mark.parametrize(
    "prompt",
    [
        ["what?", BinaryContent(PNG, media_type="image/png")],
        ["what?", ImageUrl("https://e.com/a.png"), DocumentUrl("https://e.com/a.pdf")],
        ["long", CachePoint(), "q"],
    ],
    ids=["picture", "urls", "cache point"],
)
def test_files_in_the_prompt(lab: Lab, prompt: Any) -> None:
    model = Always(TextPart("a cat"))

    assert (ok(replayed(lab, lambda run: run.llm(model.agent(), prompt).output)), model.asked) == ("a cat", 1)


def test_files_in_the_prompt_beside_untrusted_data_are_refused_by_name(lab: Lab) -> None:
    prompt = ["what?", BinaryContent(PNG, media_type="image/png")]

    run = lab.run(lambda run: run.llm(Always(TextPart("x")).agent(), prompt, untrusted="x").output)

    assert run.status == "failed" and "untrusted= needs a text" in run.error


def test_a_tool_that_gives_a_picture(lab: Lab) -> None:
    llm = LlmAgent(Turns([("shot", {})], "seen").model, name="t")

    @llm.tool_plain(metadata={"trusted": True})
    def shot() -> Any:
        return ToolReturn("a shot", content=["see", BinaryContent(PNG, media_type="image/png")])

    assert ok(replayed(lab, lambda run: run.llm(llm, "q").output)) == "seen"


def test_a_picture_as_output(lab: Lab) -> None:
    picture = FilePart(BinaryImage(PNG, media_type="image/png"))
    model = Always(picture, profile=ModelProfile(supports_image_output=True))
    llm = model.agent(output_type=BinaryImage)

    run = replayed(lab, lambda run: len(run.llm(llm, "draw").output.data))

    assert (ok(run), model.asked) == (len(PNG), 1)


def test_a_thinking_part_is_recorded_and_replayed(lab: Lab) -> None:
    model = Always(ThinkingPart("hmm", signature="s", provider_name="m"), TextPart("two"))
    llm = model.agent(model_settings={"thinking": "high"})

    assert (ok(replayed(lab, lambda run: run.llm(llm, "q").output)), model.asked) == ("two", 1)


def test_a_history_and_a_second_call_on_the_history_of_the_first(lab: Lab) -> None:
    given = [ModelRequest(parts=[UserPromptPart("one")]), ModelResponse(parts=[TextPart("1")])]
    llm = LlmAgent(Turns("never", "two", "three").model, name="t")

    def ask(run: Any) -> Any:
        first = run.llm(llm, "q", message_history=given)
        return [first.output, run.llm(llm, "and?", message_history=first.all_messages()).output]

    assert ok(replayed(lab, ask)) == ["two", "three"]


def test_deps_of_ones_own_and_agents_without_a_name(lab: Lab) -> None:
    llm: Any = LlmAgent(Turns([("who", {})], "done").model, deps_type=dict)
    seen: list[str] = []

    @llm.tool(metadata={"trusted": True})  # type: ignore[untyped-decorator]
    def who(ctx: RunContext[dict[str, Any]]) -> str:
        seen.append(str(ctx.deps["name"]))
        return "ada"

    assert (ok(replayed(lab, lambda run: run.llm(llm, "q", deps={"name": "ada"}).output)), seen) == ("done", ["ada"])


def test_arguments_are_validated_once_and_the_model_gets_the_fault(lab: Lab) -> None:
    seen: list[int] = []

    def check(ctx: RunContext[Any], cents: int) -> None:
        seen.append(cents)
        if cents > 5:
            raise ModelRetry("too much")

    def pay(cents: int) -> str:
        return "paid"

    turns = Turns([("pay", {"cents": 9})], [("pay", {"cents": 1})], "done")
    llm = LlmAgent(turns.model, name="t", tools=[Tool(pay, args_validator=check)])

    assert (ok(replayed(lab, lambda run: run.llm(llm, "q").output)), seen) == ("done", [9, 1])


def test_two_agents_side_by_side(lab: Lab) -> None:
    one, two = Always(TextPart("a")), Always(TextPart("b"))

    async def body(run: Any) -> Any:
        results = await asyncio.gather(run.llm(one.agent(), "q", key="1"), run.llm(two.agent(), "q", key="2"))
        await run.sleep("1h")
        return [result.output for result in results]

    assert (ok(lab.later(lab.run(body))), one.asked, two.asked) == (["a", "b"], 1, 1)


def test_an_override_of_instructions_counts(lab: Lab) -> None:
    events: list[Any] = []

    def answer(messages: list[Any], info: AgentInfo) -> ModelResponse:
        events.append(info.instructions)
        return ModelResponse(parts=[TextPart("x")])

    llm = LlmAgent(FunctionModel(answer, model_name="m"), name="t", instructions="mine")
    with llm.override(instructions="another's"):
        ok(replayed(lab, lambda run: run.llm(llm, "q").output))

    assert events == ["another's"]


def external() -> Any:
    schema = {"type": "object", "properties": {}}
    return ExternalToolset([ToolDefinition(name="slow", parameters_json_schema=schema)])


@pytest.mark.parametrize("how", ["external", "raised"])
def test_deferred_calls_are_answered_by_a_second_call(lab: Lab, how: str) -> None:
    called: list[int] = []
    llm: Any = LlmAgent(
        Turns([("slow", {})], "done").model,
        name="t",
        output_type=[str, DeferredToolRequests],
        toolsets=[external()] if how == "external" else [],
    )
    if how == "raised":

        @llm.tool_plain(metadata={"effect": "at_most_once"})  # type: ignore[untyped-decorator]
        def slow() -> str:
            called.append(1)
            raise CallDeferred

    def ask(run: Any) -> Any:
        first = run.llm(llm, "q")
        run.sleep("1h", key="meanwhile")
        results = DeferredToolResults(calls={first.output.calls[0].tool_call_id: "the answer"})
        return run.llm(llm, None, message_history=first.all_messages(), deferred_tool_results=results).output

    run = lab.later(replayed(lab, ask))

    assert (ok(run), called) == ("done", [1] if how == "raised" else [])


def test_an_external_tool_without_deferred_requests_is_refused_at_once(lab: Lab) -> None:
    turns = Turns([("slow", {})], "done")
    llm = LlmAgent(turns.model, name="t", toolsets=[external()])

    run = lab.run(lambda run: run.llm(llm, "q").output, policy={"retries": 3})

    assert (run.status, turns.asked) == ("failed", 1)
    assert "DeferredToolRequests" in run.error


def streaming() -> FunctionModel:
    async def stream(messages: Any, info: AgentInfo) -> AsyncIterator[str]:
        yield "hel"
        yield "lo"

    return FunctionModel(
        lambda messages, info: ModelResponse(parts=[TextPart("hello")]), stream_function=stream, model_name="m"
    )


@pytest.mark.parametrize("how", ["option", "capability"])
def test_events_of_a_call_come_again_on_each_replay(lab: Lab, how: str) -> None:
    seen: list[str] = []

    async def handler(ctx: RunContext[Any], events: Any) -> None:
        async for event in events:
            seen.append(type(event).__name__)

    given: Any = {"capabilities": [ProcessEventStream(handler)]} if how == "capability" else {}
    options: Any = {"event_stream_handler": handler} if how == "option" else {}
    llm: LlmAgent[Any, Any] = LlmAgent(streaming(), name="t", **given)

    def body(run: Any) -> Any:
        output = run.llm(llm, "q", **options).output
        run.sleep("1h")
        return output

    run = lab.run(body)
    first = [*seen]
    run = lab.later(run)

    assert ok(run) == "hello"
    assert first and seen == [*first, *first]


def test_hooks_and_history_processors_run_again_on_each_replay(lab: Lab) -> None:
    seen: list[str] = []
    hooks: Hooks[Any] = Hooks()

    @hooks.on.after_model_request
    async def after(ctx: Any, *, request_context: Any, response: Any) -> Any:
        seen.append("hook")
        return response

    def history(messages: list[ModelMessage]) -> list[ModelMessage]:
        seen.append("history")
        return messages

    model = Always(TextPart("x"))
    llm = model.agent(capabilities=[hooks, ProcessHistory(history)])

    ok(replayed(lab, lambda run: run.llm(llm, "q").output))

    assert (sorted(seen), model.asked) == (["history", "history", "hook", "hook"], 1)


def test_a_usage_limit_ends_the_run_at_once(lab: Lab) -> None:
    turns = Turns([("f", {})], [("f", {})], "done")
    llm = LlmAgent(turns.model, name="t")
    llm.tool_plain(name="f")(one)

    run = lab.run(
        lambda run: run.llm(llm, "q", usage_limits=UsageLimits(request_limit=1)).output, policy={"retries": 3}
    )

    assert (run.status, turns.asked) == ("failed", 1)
    assert "UsageLimitExceeded" in run.error


def one() -> int:
    return 1


def test_a_timeout_ends_the_run_at_once(lab: Lab) -> None:
    async def slow(messages: Any, info: Any) -> ModelResponse:
        await asyncio.sleep(0.5)
        return ModelResponse(parts=[TextPart("late")])

    llm = LlmAgent(FunctionModel(slow, model_name="m"), name="t")

    run = lab.run(lambda run: run.llm(llm, "q", timeout=0.2).output, policy={"retries": 3})

    assert run.status == "failed" and "RunTimedOut" in run.error


def test_a_tool_that_enqueues_a_message_is_refused_by_name(lab: Lab) -> None:
    llm: Any = LlmAgent(Turns([("f", {})], "done").model, name="t")

    @llm.tool  # type: ignore[untyped-decorator]
    def f(ctx: RunContext[Any]) -> str:
        ctx.enqueue("by the way")
        return "ok"

    run = lab.run(lambda run: run.llm(llm, "q").output, policy={"retries": 3})

    assert run.status == "failed" and "enqueue" in run.error


def test_run_llm_in_a_tool_is_refused_by_name(lab: Lab) -> None:
    llm: Any = LlmAgent(Turns([("f", {})], "done").model, name="t")

    @llm.tool  # type: ignore[untyped-decorator]
    def f(ctx: RunContext[Any]) -> str:
        return str(ctx.deps.llm(llm, "q").output)

    run = lab.run(lambda run: run.llm(llm, "q", deps=run).output, policy={"retries": 3})

    assert run.status == "failed" and "inside step" in run.error


def test_requests_in_a_batch_are_refused_by_name(lab: Lab) -> None:
    model = Always(TextPart("x"))
    llm = model.agent(capabilities=[BatchModelRequests()])

    run = lab.run(lambda run: run.llm(llm, "q").output, policy={"retries": 3})

    assert (run.status, model.asked) == ("failed", 0)
    assert "BatchModelRequests" in run.error


def test_instructions_that_are_functions_run_again_on_each_replay(lab: Lab) -> None:
    model, seen = Always(TextPart("x")), []

    def instruct() -> str:
        seen.append(1)
        return "be short"

    ok(replayed(lab, lambda run: run.llm(model.agent(instructions=instruct), "q").output))

    assert (len(seen), model.asked) == (2, 1)
