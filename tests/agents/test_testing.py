"""`agents.testing`: an agent in a user's test behaves as it would in production."""

import asyncio
import socket
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from asgiref.sync import sync_to_async

from agents import Agent, AgentRun, Answer, AsyncAgentRun, Permanent, Retry, StepFailed, agent
from agents.exceptions import NetworkRefused
from agents.kernel.effects import Pace
from agents.models import AgentState
from agents.testing import Crashed, Journal, Unanswered, run_agent

pytestmark = pytest.mark.django_db


def test_run_agent_returns_what_the_run_would_commit() -> None:
    @agent("invoicer")
    def invoicer(run: AgentRun) -> dict[str, int]:
        run.state.set("invoices", run.state.get("invoices", 0) + 1)
        run.emit("invoice.booked", run.event.data, key="booked")
        run.notify("booked", urgency="low")
        return {"invoices": run.state.get("invoices")}

    done = run_agent(invoicer, data={"number": 7})

    assert done.result == {"invoices": 1}
    assert [(event.type, event.data, event.key) for event in done.emitted] == [
        ("invoice.booked", {"number": 7}, "booked")
    ]
    assert [(notice.text, notice.urgency) for notice in done.notifications] == [("booked", "low")]
    assert run_agent(invoicer).result == {"invoices": 2}


def test_the_pace_that_a_heartbeat_requested_is_shown() -> None:
    watcher = agent("watcher")(lambda run: run.next_check("10m") or run.next_check("2h", "quiet night"))

    assert run_agent(watcher).pace == Pace(after=timedelta(hours=2), reason="quiet night")
    assert run_agent(agent("sleeper")(lambda run: None)).pace is None


def test_the_test_gives_what_woke_the_agent() -> None:
    seen: list[AgentRun] = []
    watcher = agent("watcher")(seen.append)
    at, run_id = datetime(2026, 11, 20, tzinfo=UTC), uuid4()

    run_agent(
        watcher,
        data=1,
        type="a.b",
        source="door",
        subject="s",
        time=at,
        input={"n": 2},
        trigger="t",
        run_id=run_id,
        attempt=3,
    )

    [run] = seen
    event = run.event
    assert (event.data, event.type, event.source, event.subject, event.time) == (1, "a.b", "door", "s", at)
    assert (run.input, run.trigger, run.attempt, run.id) == ({"n": 2}, "t", 3, run_id)


@pytest.mark.parametrize("error", [Retry("later", after=5), Permanent("never"), ZeroDivisionError()])
def test_run_agent_raises_the_agents_error_and_undoes_its_writes(error: Exception) -> None:
    @agent("raiser")
    def raiser(run: AgentRun) -> None:
        run.state.set("seen", 1)
        raise error

    with pytest.raises(type(error)) as raised:
        run_agent(raiser)

    assert raised.value is error
    assert not AgentState.objects.exists()


def test_an_async_agent_writes_in_the_tests_own_transaction_and_has_no_network() -> None:
    @agent("awaiter")
    async def awaiter(run: AgentRun) -> int:
        await sync_to_async(run.state.set)("seen", run.event.data)
        run.emit("seen")
        if run.event.data > 1:
            await asyncio.open_connection("127.0.0.1", 9)
        return await AgentState.objects.acount()

    done = run_agent(awaiter, data=1)

    assert (done.result, [event.type for event in done.emitted]) == (1, ["seen"])
    with pytest.raises(NetworkRefused):
        run_agent(awaiter, data=2)
    assert AgentState.objects.get().value == 1


def test_the_network_is_refused_as_in_production() -> None:
    @agent("caller")
    def caller(run: AgentRun) -> None:
        socket.create_connection(("127.0.0.1", 9), timeout=1)

    with pytest.raises(NetworkRefused):
        run_agent(caller)


def test_a_result_or_event_that_could_not_be_stored_fails_the_test_and_not_first_the_production() -> None:
    @agent("returner")
    def returner(run: AgentRun) -> set[int]:
        return {1}

    @agent("emitter")
    def emitter(run: AgentRun) -> None:
        run.emit("a.b", {"when": run.now()})

    with pytest.raises(Permanent, match="its result is not JSON"):
        run_agent(returner)
    with pytest.raises(Permanent, match="emitted event 'a.b' is not JSON"):
        run_agent(emitter)


# Durable agents


def durable(body: Callable[..., Any]) -> Agent:
    return agent(f"durable {uuid4()}", durable=True)(body)


def test_a_durable_agent_runs_to_its_end_and_shows_its_steps_in_order() -> None:
    def body(run: AgentRun) -> list[Any]:
        greeting = run.step("greet", lambda: {"pair": (1, 2)})
        run.sleep("3d")
        run.notify("three days have passed")
        number = run.step("ask", lambda: 7, effect="read")
        run.emit("asked", {"number": number})
        return [greeting, number]

    done = run_agent(durable(body))

    assert done.result == [{"pair": [1, 2]}, 7]
    assert done.steps == ["greet", "notify#1", "ask", "emit asked#1"]
    assert done.journal.keys == ["greet", "sleep#1", "notify#1", "ask", "emit asked#1"]
    assert [event.data for event in done.emitted] == [{"number": 7}]
    assert [notice.text for notice in done.notifications] == ["three days have passed"]


def test_the_test_gives_the_results_of_waits() -> None:
    def body(run: AgentRun) -> Any:
        paid = run.wait_for_event("invoice.paid", match={"customer": 7}, timeout="7d")
        late = run.wait_for_event("invoice.paid", timeout="7d", key="second")
        signal = run.wait_for_signal("hurry")
        answer = run.ask_approval("Call?", arguments={"number": 1})
        children = [run.spawn("picker", {"item": item}, key=item) for item in "ab"]
        return [paid and paid.data, late, signal and signal.data, answer.arguments, run.gather(*children)]

    done = run_agent(
        durable(body),
        waits={
            "event invoice.paid#1": {"customer": 7, "sum": 12},
            "event invoice.paid:second": None,
            "signal hurry#1": "now",
            "approval#1": Answer(decision="edited", arguments={"number": 2}),
            "join#1": ["red", "green"],
        },
    )

    assert done.result == [{"customer": 7, "sum": 12}, None, "now", {"number": 2}, ["red", "green"]]
    assert [child.input for child in done.children] == [{"item": "a"}, {"item": "b"}]


@pytest.mark.parametrize(
    ("wait", "named"),
    [
        (lambda run: run.wait_for_event("a.b", match={"c": 1}), "'event a.b#1': {…}"),
        (lambda run: run.ask_approval("Now?"), "'approval#1': \"approved\""),
        (lambda run: run.gather(run.spawn("a", key="1"), run.spawn("a", key="2")), r"'join#1': \[…, …\]"),
    ],
)
def test_a_wait_without_an_answer_is_named(wait: Callable[[AgentRun], Any], named: str) -> None:
    with pytest.raises(Unanswered, match=named):
        run_agent(durable(wait))


def test_a_decision_that_there_is_not_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="True is not an Answer or one of approved"):
        run_agent(durable(lambda run: run.ask_approval("Now?")), waits={"approval#1": True})


def test_time_passes_for_the_run_as_it_sleeps() -> None:
    def body(run: AgentRun) -> float:
        began = run.now()
        run.sleep("3d")
        run.sleep_until(began + timedelta(days=5))
        run.wait_for_event("never", timeout="2d")
        return (run.now() - began) / timedelta(days=1)

    assert run_agent(durable(body), waits={"event never#1": None}).result == pytest.approx(7, abs=0.01)


def test_run_again_with_its_journal_it_does_nothing_twice() -> None:
    calls: list[str] = []

    def body(run: AgentRun) -> Any:
        run.step("write", lambda: run.state._write("n", 1))
        run.step("call", calls.append, "x", effect="at_most_once")
        answer = run.ask_approval("Go on?")
        return [str(run.uuid()), run.now().isoformat(), run.event.data, bool(answer)]

    first = run_agent(durable(body), data=5, waits={"approval#1": "approved"})
    again = run_agent(durable(body), journal=first.journal)

    assert (again.result, again.steps, calls) == (first.result, [], ["x"])
    assert AgentState.objects.get().revision == 1


def test_a_run_that_crashed_goes_on_after_its_last_step() -> None:
    calls: list[str] = []

    def body(run: AgentRun) -> UUID:
        for name in ("first", "second", "third"):
            run.step(name, calls.append, name, effect="idempotent")
        run.emit("done")
        return run.id

    crashing, journal = durable(lambda run: str(body(run))), Journal()
    with pytest.raises(Crashed):
        run_agent(crashing, journal=journal, crash_after="second")
    assert journal.keys == calls == ["first", "second"]

    done = run_agent(crashing, journal=journal)

    assert calls == ["first", "second", "third"]
    assert done.steps == ["third", "emit done#1"]
    assert done.result == str(journal.run["id"])


def test_a_crash_after_a_step_keeps_its_writes_and_none_of_the_next() -> None:
    def body(run: AgentRun) -> None:
        run.state.set("a", 1)
        run.state.set("b", 1)

    with pytest.raises(Crashed):
        run_agent(durable(body), crash_after="set state a#1")

    assert list(AgentState.objects.values_list("name", flat=True)) == ["a"]


def test_a_crash_after_a_step_that_there_is_not_is_a_mistake_of_the_test() -> None:
    with pytest.raises(ValueError, match="the agent ended without that step; its steps were first"):
        run_agent(durable(lambda run: run.step("first", lambda: None)), crash_after="second")


def test_writing_outside_of_a_step_is_refused_and_so_is_the_network_inside_a_transactional_one() -> None:
    def call() -> None:
        socket.create_connection(("127.0.0.1", 9), timeout=1)

    with pytest.raises(Permanent, match="may only read here"):
        run_agent(durable(lambda run: AgentState.objects.create(agent="x", name="y", value=1)))
    with pytest.raises(StepFailed, match="NetworkRefused"):
        run_agent(durable(lambda run: run.step("call", call)))
    with pytest.raises(StepFailed, match="ConnectionRefusedError"):
        run_agent(durable(lambda run: run.step("call", call, effect="read")))


def test_an_async_durable_agent_is_run_alike() -> None:
    journal = Journal()

    async def fetch(number: int) -> int:
        await asyncio.sleep(0)
        return number * 2

    async def body(run: AsyncAgentRun) -> list[int]:
        await run.state.set("seen", run.event.data)
        found = await asyncio.gather(
            *(run.step("fetch", fetch, number, key=number, effect="read") for number in (1, 2))
        )
        await run.sleep("1d")
        await run.emit("found", found)
        await run.next_check("1h")
        return found

    with pytest.raises(Crashed):
        run_agent(durable(body), data=3, journal=journal, crash_after="set state seen#1")
    done = run_agent(durable(body), journal=journal)

    assert (done.result, sorted(done.steps)) == ([2, 4], ["emit found#1", "fetch:1", "fetch:2", "next_check#1"])
    assert done.pace == Pace(after=timedelta(hours=1))
    assert AgentState.objects.get().value == 3


def test_an_atomic_agent_has_no_journal() -> None:
    with pytest.raises(ValueError, match="is atomic"):
        run_agent(agent("atomic")(lambda run: None), crash_after="x")
