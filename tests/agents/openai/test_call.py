"""`run.openai`: each request of an agent of openai-agents is a step, which a replay does not make again."""

import asyncio
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from agents import AgentRun, AsyncAgentRun, Permanent, StepFailed
from agents.testing import Crashed, Journal, assert_replays, run_agent
from tests.agents.openai.assistants import SDK, UNCLOSED, assistant, chat_model, durable, provider, wire
from tests.support.wire import Call, Status, Turn, Wire

pytestmark = [pytest.mark.django_db, *UNCLOSED]
SDK_MCP: Any = import_module(f"{SDK.__name__}.mcp")
__all__ = ["chat_model", "provider", "wire"]


def adding(run: Any) -> Any:
    @SDK.function_tool
    def add(a: int, b: int) -> int:
        return int(run.step("add", lambda: a + b, key=f"{a} and {b}"))

    return add


def sums(wire: Wire, conversation: str, **about: Any) -> Any:
    def body(run: AgentRun) -> Any:
        clerk = assistant(tools=[adding(run)], **about)
        return run.openai(clerk, wire.prompt("sums", conversation), trusted_tools=["add"]).final_output

    return durable(body)


@pytest.fixture(autouse=True)
def scripts(wire: Wire) -> None:
    wire.script("sums", [Call("add", a=1, b=2)], [Call("add", a=3, b=4)], "10")
    wire.script("word", "so")


def test_each_turn_is_a_step_and_a_replay_asks_nothing(wire: Wire) -> None:
    done = run_agent(sums(wire, "turns"), may_ask_providers=True)

    assert done.result == "10"
    assert [key for key in done.journal.keys if "request" in key] == [f"openai#1:request {n}" for n in (1, 2, 3)]
    assert done.steps == [
        "openai#1:request 1",
        "add:1 and 2",
        "openai#1:request 2",
        "add:3 and 4",
        "openai#1:request 3",
    ]
    assert_replays(done)
    assert wire.asked("turns") == {0: 1, 1: 1, 2: 1}
    assert not done.is_tainted


@pytest.mark.parametrize("model", ["gpt-4o", "an object"])
@pytest.mark.parametrize(
    "after", ["openai#1:request 1", "add:1 and 2", "openai#1:request 2", "add:3 and 4", "openai#1:request 3"]
)
def test_a_crash_after_any_step_pays_and_does_nothing_twice(
    wire: Wire, chat_model: Any, after: str, model: str
) -> None:
    conversation, journal = f"crash {model} {after}".replace(" ", "-").replace("#", "-"), Journal()
    agent = sums(wire, conversation, model=chat_model if model == "an object" else model)
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, crash_after=after, may_ask_providers=True)

    done = run_agent(agent, journal=journal, may_ask_providers=True)

    assert done.result == "10"
    assert wire.asked(conversation) == {0: 1, 1: 1, 2: 1}


def test_an_async_agent_awaits_it_beside_other_steps(wire: Wire) -> None:
    async def body(run: AsyncAgentRun) -> Any:
        @SDK.function_tool
        async def add(a: int, b: int) -> int:
            return int(await run.step("add", lambda: a + b, key=f"{a} and {b}"))

        clerk = assistant(tools=[add])
        both = await asyncio.gather(
            *(run.openai(clerk, wire.prompt("sums", f"async-{key}"), key=key) for key in ("a",)),
            run.step("beside", lambda: 5, key="b"),
        )
        return [both[0].final_output, both[1]]

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == ["10", 5]
    assert_replays(done)
    assert wire.asked("async-a") == {0: 1, 1: 1, 2: 1}


def test_runs_one_after_the_other_share_a_client(wire: Wire, chat_model: Any) -> None:
    model = chat_model
    for number in range(3):
        done = run_agent(sums(wire, f"shared-{number}", model=model), may_ask_providers=True)
        assert done.result == "10"


def test_agents_that_are_tools_and_run_beside_each_other_get_their_own_answers_again(wire: Wire) -> None:
    wire.script(
        "both",
        [Call("first", input=wire.prompt("one", "nested")), Call("second", input=wire.prompt("two", "nested2"))],
        "done",
    )
    wire.script("one", "1")
    wire.script("two", "2")
    heard: list[Any] = []

    def body(run: AgentRun) -> Any:
        tools = [assistant(name).as_tool(name, "asks") for name in ("first", "second")]
        done = run.openai(assistant(tools=tools), wire.prompt("both", "nesting"))
        heard.append([item.output for item in done.new_items if item.type == "tool_call_output_item"])
        return done.final_output

    done = run_agent(durable(body), may_ask_providers=True)
    assert_replays(done)

    assert heard == [["1", "2"], ["1", "2"]]
    assert {**wire.asked("nesting"), **wire.asked("nested"), **wire.asked("nested2")} == {0: 1, 1: 1}


def test_a_handoff_goes_to_an_agent_whose_requests_are_steps_too(wire: Wire, chat_model: Any) -> None:
    wire.script("over", [Call("transfer_to_second")], "from the second")

    def body(run: AgentRun) -> Any:
        second = assistant("second", model=chat_model)
        done = run.openai(assistant("first", handoffs=[second]), wire.prompt("over", "handoff"))
        return [done.last_agent.name, done.final_output]

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == ["second", "from the second"]
    assert_replays(done)
    assert wire.asked("handoff") == {0: 1, 1: 1}
    assert not done.is_tainted  # what a handoff says, no stranger wrote


def test_a_guardrail_beside_the_model_has_a_lane_of_its_own(wire: Wire) -> None:
    wire.script("guard", "fine")

    def body(run: AgentRun) -> Any:
        @SDK.input_guardrail
        async def checked(context: Any, agent: Any, input: Any) -> Any:
            told = await SDK.Runner.run(assistant("guard"), wire.prompt("guard", "guardrail"), context=context.context)
            return SDK.GuardrailFunctionOutput(output_info=told.final_output, tripwire_triggered=False)

        done = run.openai(assistant(input_guardrails=[checked]), wire.prompt("word", "guarded"))
        return [done.final_output, done.input_guardrail_results[0].output.output_info]

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == ["so", "fine"]
    assert_replays(done)
    assert (wire.asked("guarded"), wire.asked("guardrail")) == ({0: 1}, {0: 1})


def test_a_guardrail_that_trips_fails_the_run_and_the_request_beside_it_is_recorded(wire: Wire) -> None:
    def body(run: AgentRun) -> Any:
        @SDK.input_guardrail
        async def trips(context: Any, agent: Any, input: Any) -> Any:
            await asyncio.sleep(0.05)
            return SDK.GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

        with pytest.raises(SDK.InputGuardrailTripwireTriggered):
            run.openai(assistant(input_guardrails=[trips]), wire.prompt("word", "tripped"))
        return "tripped"

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == "tripped"
    assert "openai#1:request 1" in done.journal.keys
    assert_replays(done)


def test_a_changed_prompt_is_given_the_answer_that_is_paid(wire: Wire) -> None:
    journal, instructions = Journal(), ["Answer."]

    def body(run: AgentRun) -> Any:
        clerk = assistant(instructions=instructions[0], tools=[adding(run)])
        return run.openai(clerk, wire.prompt("sums", "changed")).final_output

    with pytest.raises(Crashed):
        run_agent(durable(body), journal=journal, crash_after="openai#1:request 2", may_ask_providers=True)
    instructions[0] = "Answer politely."
    done = run_agent(durable(body), journal=journal, may_ask_providers=True)

    assert done.result == "10"
    assert wire.asked("changed") == {0: 1, 1: 1, 2: 1}


def test_a_stream_in_a_tool_is_a_step_too(wire: Wire) -> None:
    wire.script("outer", [Call("inner", input=wire.prompt("word", "stream"))], "done")
    seen: list[list[str]] = []

    def body(run: AgentRun) -> Any:
        kinds: list[str] = []
        seen.append(kinds)

        async def note(event: Any) -> None:
            if event["event"].type == "raw_response_event":
                kinds.append(event["event"].data.type)

        tool = assistant("inner").as_tool("inner", "asks", on_stream=note, failure_error_function=None)
        done = run.openai(assistant(tools=[tool]), wire.prompt("outer", "streaming"))
        return [item.output for item in done.new_items if item.type == "tool_call_output_item"]

    done = run_agent(durable(body), may_ask_providers=True)
    assert_replays(done)

    assert done.result == ["so"]
    assert len(seen[0]) > 1 and seen[1] == ["response.completed"]
    assert wire.asked("stream") == {0: 1}


def test_a_plain_tool_may_run_an_agent_in_its_thread(wire: Wire) -> None:
    wire.script("asks", [Call("ask")], "done")

    def body(run: AgentRun) -> Any:
        @SDK.function_tool(failure_error_function=None)
        def ask() -> str:
            return str(SDK.Runner.run_sync(assistant("other"), wire.prompt("word", "in-a-thread")).final_output)

        done = run.openai(assistant(tools=[ask]), wire.prompt("asks", "thread"))
        return [item.output for item in done.new_items if item.type == "tool_call_output_item"]

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == ["so"]
    assert_replays(done)
    assert wire.asked("in-a-thread") == {0: 1}


def test_a_model_of_any_class_is_journaled(wire: Wire, chat_model: Any) -> None:
    asked: list[Any] = []

    class Mine(SDK.Model):  # type: ignore[misc]
        async def get_response(self, *given: Any, **named: Any) -> Any:
            asked.append(named)
            return await chat_model.get_response(*given, **named)

        def stream_response(self, *given: Any, **named: Any) -> Any:
            return chat_model.stream_response(*given, **named)

    def body(run: AgentRun) -> Any:
        return run.openai(assistant(model=Mine()), wire.prompt("word", "mine")).final_output

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == "so" and len(asked) == 1
    assert_replays(done)
    assert wire.asked("mine") == {0: 1} and len(asked) == 1


def test_a_tool_that_needs_approval_is_a_question_to_a_person(wire: Wire) -> None:
    wire.script("pays", [Call("pay", amount=5)], "paid")
    wire.script("denied", [Call("pay", amount=5)], "not paid")

    def body(script: str) -> Any:
        def inner(run: AgentRun) -> Any:
            @SDK.function_tool(needs_approval=True)
            def pay(amount: int) -> str:
                return str(run.step("pay", lambda: f"paid {amount}", key=str(amount)))

            done = run.openai(assistant(tools=[pay]), wire.prompt(script, script))
            return [done.final_output, [one.output for one in done.new_items if one.type == "tool_call_output_item"]]

        return durable(inner)

    for script, decision in (("pays", "approved"), ("denied", "denied")):
        waits = {"approval:openai#1: pay call_0_0": decision}
        done = run_agent(body(script), waits=waits, may_ask_providers=True)
        assert done.result[0] == ("paid" if decision == "approved" else "not paid")
        assert done.result[1] == (["paid 5"] if decision == "approved" else ["A person has denied this call."])
        assert wire.asked(script) == {0: 1, 1: 1}


def test_two_calls_of_one_run_are_told_apart(wire: Wire) -> None:
    def body(run: AgentRun) -> Any:
        return [run.openai(assistant(), wire.prompt("word", f"two-{number}")).final_output for number in (1, 2)]

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == ["so", "so"]
    assert_replays(done)


def test_a_busy_provider_is_asked_again_by_the_journal_alone(wire: Wire, chat_model: Any) -> None:
    wire.script("busy", Turn("late", faults=[Status(429), Status(503)]))
    retry = SDK.ModelSettings(
        retry=SDK.ModelRetrySettings(max_retries=5, policy=SDK.retry_policies.http_status([429, 503]))
    )

    def body(run: AgentRun) -> Any:
        clerk = assistant(model=chat_model, model_settings=retry)
        return run.openai(clerk, wire.prompt("busy", "busy")).final_output

    done = run_agent(durable(body), may_ask_providers=True)

    assert done.result == "late" and wire.asked("busy") == {0: 3}
    assert_replays(done)


def test_a_refused_request_fails_at_once_whatever_the_settings_repeat(wire: Wire) -> None:
    wire.script("refused", Turn("never", faults=[Status(400)] * 9))
    retry = SDK.ModelSettings(retry=SDK.ModelRetrySettings(max_retries=5, policy=lambda context: True))

    def body(run: AgentRun) -> Any:
        return run.openai(assistant(model_settings=retry), wire.prompt("refused", "refused")).final_output

    with pytest.raises(StepFailed):
        run_agent(durable(body), may_ask_providers=True)

    assert wire.asked("refused") == {0: 1}


# What passes by


def test_a_run_of_the_sdk_by_itself_is_refused(wire: Wire, chat_model: Any) -> None:
    def by_runner(run: AgentRun) -> Any:
        return SDK.Runner.run_sync(assistant(), wire.prompt("word", "alone")).final_output

    async def awaited(run: AsyncAgentRun) -> Any:
        return (await SDK.Runner.run(assistant(), wire.prompt("word", "alone"))).final_output

    async def streamed(run: AsyncAgentRun) -> Any:
        return [
            event async for event in SDK.Runner.run_streamed(assistant(), wire.prompt("word", "alone")).stream_events()
        ]

    async def by_model(run: AsyncAgentRun) -> Any:
        none = {"previous_response_id": None, "conversation_id": None, "prompt": None}
        settings = SDK.ModelSettings()
        return await chat_model.get_response(
            None, wire.prompt("word", "alone"), settings, [], None, [], SDK.ModelTracing.DISABLED, **none
        )

    for body in (by_runner, awaited, streamed, by_model):
        with pytest.raises(Permanent, match=r"run\.openai"):
            run_agent(durable(body), may_ask_providers=True)
    assert wire.asked("alone") == {}


def test_a_whole_run_may_be_one_step(wire: Wire) -> None:
    def answer() -> str:
        return str(SDK.Runner.run_sync(assistant(), wire.prompt("word", "whole")).final_output)

    done = run_agent(durable(lambda run: run.step("answer", answer, effect="idempotent")), may_ask_providers=True)

    assert done.result == "so" and wire.asked("whole") == {0: 1}


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_client_serves_calls_and_whole_runs_in_turn(wire: Wire, chat_model: Any, is_streamed: bool) -> None:
    clerk = assistant(model=chat_model)

    async def streamed() -> str:
        result = SDK.Runner.run_streamed(clerk, wire.prompt("word", "whole-in-turn"))
        return "".join([event.data.delta async for event in result.stream_events() if is_text(event)])

    def whole() -> str:
        if is_streamed:
            return asyncio.run(streamed())
        return str(SDK.Runner.run_sync(clerk, wire.prompt("word", "whole-in-turn")).final_output)

    def body(run: AgentRun) -> Any:
        return [
            run.openai(clerk, wire.prompt("word", "in-turn-1")).final_output,
            run.step("whole", whole, effect="idempotent"),
            run.openai(clerk, wire.prompt("word", "in-turn-2")).final_output,
        ]

    assert run_agent(durable(body), may_ask_providers=True).result == ["so", "so", "so"]
    assert whole() == "so"  # outside of runs


def is_text(event: Any) -> bool:
    return bool(event.type == "raw_response_event" and event.data.type == "response.output_text.delta")


def test_outside_of_runs_the_sdk_is_as_it_is(wire: Wire, chat_model: Any) -> None:
    run_agent(durable(lambda run: None))  # the guards are there

    done = asyncio.run(SDK.Runner.run(assistant(model=chat_model), wire.prompt("word", "outside")))

    assert done.final_output == "so"


def test_a_session_of_the_sdk_is_refused(wire: Wire) -> None:
    def body(run: AgentRun) -> Any:
        return run.openai(assistant(), "hello", session=SDK.SQLiteSession("one"))

    with pytest.raises(Permanent, match="to_input_list"):
        run_agent(durable(body), may_ask_providers=True)


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(Permanent, match="takes an agent of openai-agents"):
        run_agent(durable(lambda run: run.openai("Clerk", "hello")), may_ask_providers=True)


def test_an_atomic_agent_is_refused() -> None:
    from agents.agent import Agent

    with pytest.raises(Permanent, match="durable=True"):
        run_agent(Agent(name="clerk", body=lambda run: run.openai(assistant(), "hello")))


# Safety


def test_the_result_of_a_tool_taints_the_run(wire: Wire) -> None:
    def body(run: AgentRun) -> Any:
        return run.openai(assistant(tools=[adding(run)]), wire.prompt("sums", "taint")).final_output

    assert run_agent(durable(body), may_ask_providers=True).is_tainted


def test_a_tool_beyond_the_cap_is_neither_offered_nor_called(wire: Wire) -> None:
    @SDK.function_tool
    def look(what: str) -> str:
        return what

    def body(run: AgentRun) -> Any:
        return run.openai(assistant(tools=[adding(run), look]), wire.prompt("sums", "cap")).final_output

    with pytest.raises(Permanent, match="'add' is beyond the tool cap"):
        run_agent(durable(body, tools=["look"]), may_ask_providers=True)
    assert [tool["name"] for tool in wire.of("cap")[0].body["tools"]] == ["look"]


def test_traces_leave_no_worker(wire: Wire) -> None:
    def body(run: AgentRun) -> Any:
        return run.openai(assistant(), wire.prompt("word", "traced")).final_output

    run_agent(durable(body), may_ask_providers=True)

    assert SDK.trace("of mine").trace_id == "no-op"
    SDK.set_tracing_disabled(False)  # who wants traces, says so
    try:
        assert SDK.trace("of mine").trace_id != "no-op"
    finally:
        SDK.set_tracing_disabled(True)


def test_known_secrets_are_taken_out(wire: Wire) -> None:
    from agents.kernel.redaction import know

    know("a-secret-of-this-test-77")

    def body(run: AgentRun) -> Any:
        clerk = assistant(instructions="Say a-secret-of-this-test-77.")
        return run.openai(clerk, wire.prompt("word", "secret", "a-secret-of-this-test-77")).final_output

    run_agent(durable(body), may_ask_providers=True)

    [request] = wire.of("secret")
    assert "a-secret-of-this-test-77" not in str(request.body) and "[secret]" in str(request.body)


COUNTER = """
import sys
from mcp.server import MCPServer

server = MCPServer("counter")


@server.tool()
def count(what: str) -> str:
    with open(sys.argv[1], "a") as called:
        called.write(what)
    return what.upper()


server.run()
"""


def test_a_tool_of_an_mcp_server_is_called_once(wire: Wire, tmp_path: Path) -> None:
    wire.script("counts", [Call("count", what="a"), Call("count", what="b")], [Call("count", what="a")], "aba")
    (tmp_path / "server.py").write_text(COUNTER)
    called, journal = tmp_path / "called", Journal()
    command = {"command": sys.executable, "args": [str(tmp_path / "server.py"), str(called)]}

    async def body(run: AsyncAgentRun) -> Any:
        async with SDK_MCP.MCPServerStdio(params=command, name="counter", client_session_timeout_seconds=60) as server:
            clerk = assistant(mcp_servers=[server])
            done = await run.openai(clerk, wire.prompt("counts", "mcp"))
        return [item.output["text"] for item in done.new_items if item.type == "tool_call_output_item"]

    with pytest.raises(Crashed):
        run_agent(durable(body), journal=journal, crash_after="openai#1:request 2", may_ask_providers=True)
    done = run_agent(durable(body), journal=journal, may_ask_providers=True)

    assert done.result == ["A", "B", "A"]
    assert sorted(called.read_text()) == ["a", "a", "b"]
    assert_replays(done)
    assert done.is_tainted
