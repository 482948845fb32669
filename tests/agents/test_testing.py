"""`agents.testing`: an agent in a user's test behaves as it would in production."""

import asyncio
import socket
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async

from agents import AgentRun, Permanent, Retry, agent
from agents.exceptions import NetworkRefused
from agents.models import AgentState
from agents.testing import run_agent

pytestmark = pytest.mark.django_db


def test_what_the_run_would_commit_is_handed_to_the_test() -> None:
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


def test_the_test_says_what_woke_the_agent() -> None:
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
def test_what_the_agent_raises_is_raised_and_its_writes_are_undone(error: Exception) -> None:
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
