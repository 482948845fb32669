"""The loop of a caller, and what it does about requests that are its own in the database alone."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import OperationalError, connection
from psycopg import Connection
from pydantic_ai import Agent as LlmAgent
from pytest_django import Settings

from agents import AgentRun
from agents.llm.requests import secrets
from runs.actions.stop_agents import start_agents, stop_agents
from runs.budgets.reserve import Reservations
from runs.calls import rows
from runs.calls.caller import Caller, in_database_thread
from runs.db.sql import execute, fetch
from runs.durable.progress import record_late_answer
from runs.models import ModelCall, Run, Step, Worker
from tests.support.durable import Lab, lab
from tests.support.runs import make_run
from tests.support.stack import PATIENCE
from tests.support.wire import Held, Turn, Wire

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

llm = LlmAgent(name="thinker")


@pytest.fixture(autouse=True)
def model(settings: Settings, wire: Wire) -> None:
    settings.WAKEFUL_MODEL = "openai-chat:gpt-4o"
    wire.script("talk", "done")


def think(run: AgentRun) -> str:
    return str(run.llm(llm, f"[script talk {run.id}]").output)


def think_once(run: AgentRun) -> str:
    return str(run.llm(llm, f"[script talk {run.id}]", llm_in_flight="park").output)


def left(lab: Lab, body: Callable[[AgentRun], str]) -> Run:
    other = Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=2, version="1")
    make_run(trigger="of-another-worker")
    run = lab.run(body)
    assert run.status == "waiting"
    other.delete()
    return run


def with_a_caller(act: Callable[[Caller], Awaitable[None]]) -> None:
    async def run() -> None:
        caller = Caller(record_late_answer)
        try:
            await in_database_thread(caller._connect)
            await act(caller)
        finally:
            caller.bell.close()
            await in_database_thread(caller.presence.close)
            await in_database_thread(lambda: connection.close())
            if caller.requests:
                await caller.requests.close()

    asyncio.run(run())


async def until(caller: Caller, is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await in_database_thread(is_so):
            await caller.look()
            await asyncio.sleep(0.05)


async def answered(caller: Caller, requests: int) -> None:
    """Without a look of the caller, which would drop a request that another has lost."""
    async with asyncio.timeout(60):
        while len(caller.ended) < requests:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("body", [think, think_once])
def test_requests_whose_taking_was_not_confirmed_are_made_all_the_same(
    lab: Lab, wire: Wire, settings: Settings, monkeypatch: pytest.MonkeyPatch, body: Callable[[AgentRun], str]
) -> None:
    """The commit came through, and the session ended before the caller knew."""
    settings.WAKEFUL_LEASE = timedelta(seconds=0.5)  # that of this caller alone is at stake
    run = left(lab, body)
    real = rows.take
    lost: list[UUID] = []

    def take(me: UUID, most: int) -> Any:
        found = real(me, most)
        if found and not lost:
            lost.append(me)
            raise OperationalError from psycopg.OperationalError("server closed the connection unexpectedly")
        return found

    monkeypatch.setattr(rows, "take", take)

    async def act(caller: Caller) -> None:
        with pytest.raises(OperationalError):
            await until(caller, lambda: bool(wire.requests))
        await until(caller, lambda: not ModelCall.objects.exists())

    with_a_caller(act)

    assert lab.go_on(run).result == "done"
    assert wire.asked(run.id) == {0: 1}
    assert Step.objects.get(kind="model").status == "done"


@pytest.mark.parametrize(
    ("body", "place"), [(think, "reserve"), (think_once, "reserve"), (think, "client"), (think_once, "client")]
)
def test_requests_that_the_end_of_the_session_met_before_they_were_sent_are_made_by_the_caller_later(
    lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch, body: Callable[[AgentRun], str], place: str
) -> None:
    """Such as at a restart of PostgreSQL. Made by the runs themselves, hundreds of them would occupy the children for minutes."""
    run = left(lab, body)
    monkeypatch.setattr("runs.calls.caller.RECONNECT", 0.05)
    monkeypatch.setattr("agents.llm.providers.failures.FIRST", 0.05)
    reads = {"reserve": (Reservations, "limits"), "client": (secrets, "refresh")}
    where, name = reads[place]
    real = getattr(where, name)
    ended: list[int] = []

    def read(*arguments: Any) -> Any:
        if not ended:
            ended.append(end_this_session())
            fetch("SELECT 1")
        return real(*arguments)

    monkeypatch.setattr(where, name, read)

    async def act() -> None:
        caller = Caller(record_late_answer)
        calling = asyncio.create_task(caller.run())
        try:
            async with asyncio.timeout(60):
                while not wire.requests or caller.tasks:
                    await asyncio.sleep(0.05)
        finally:
            caller.stop()
            await calling
            await in_database_thread(lambda: connection.close())

    asyncio.run(act())

    assert ended and Step.objects.get(kind="model").status == "done"  # before the run has gone on
    assert lab.go_on(run).result == "done"
    assert wire.asked(run.id) == {0: 1}


def end_this_session() -> int:
    pid: int = connection.connection.info.backend_pid
    with another_session() as other:
        other.execute("SELECT pg_terminate_backend(%s, 5000)", [pid])
    return pid


def another_session() -> Connection[Any]:
    names = ("dbname", "user", "host", "port", "password")
    return psycopg.connect(
        **{name: value for name, value in connection.get_connection_params().items() if name in names}
    )


def test_a_request_that_was_cut_and_not_let_go_is_not_kept(
    lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its agent was stopped, the database went away at that moment, and the agent was started again."""
    run = left(lab, think)
    wire.script("talk", Turn("done", faults=[Held()]))
    real = rows.let_go

    def let_go(me: UUID, wait_ids: Any) -> None:
        monkeypatch.setattr(rows, "let_go", real)
        start_agents(run.agent, by="a test")
        raise OperationalError from psycopg.OperationalError("server closed the connection unexpectedly")

    monkeypatch.setattr(rows, "let_go", let_go)

    async def act(caller: Caller) -> None:
        await until(caller, lambda: bool(wire.requests))
        await in_database_thread(lambda: stop_agents(run.agent, by="a test", reason="a test"))
        with pytest.raises(OperationalError):
            await until(caller, lambda: False)
        await until(caller, lambda: not ModelCall.objects.exists())

    with_a_caller(act)

    assert lab.go_on(run).result == "done"
    assert wire.asked(run.id) == {0: 2}


def test_a_late_answer_whose_run_is_locked_costs_the_caller_no_lease(lab: Lab, wire: Wire, settings: Settings) -> None:
    """Another caller has lost it, and another transaction has locked the run."""
    run = left(lab, think_once)
    held = Held()
    wire.script("talk", Turn("done", faults=[held]))

    async def act(caller: Caller) -> None:
        await until(caller, lambda: bool(wire.requests))
        await in_database_thread(lambda: ModelCall.objects.all().delete())
        assert await in_database_thread(rows.hand_back_abandoned) == 1
        me = caller.me
        with another_session() as other:
            other.execute("SELECT 1 FROM runs_run WHERE id = %s FOR UPDATE", [run.id])
            held.release()
            await answered(caller, 1)
            until_then = time.monotonic() + settings.WAKEFUL_LEASE.total_seconds()
            while time.monotonic() < until_then:
                began = time.monotonic()
                async with asyncio.timeout(20):
                    await caller.look()
                assert time.monotonic() - began < settings.WAKEFUL_LEASE.total_seconds() / 2
                await asyncio.sleep(0.1)
            other.rollback()
        await until(caller, lambda: Step.objects.get(kind="model").status == "done")
        assert caller.me == me and not caller.ended and not caller.tasks

    with_a_caller(act)

    assert lab.go_on(run).result == "done"
    assert wire.asked(run.id) == {0: 1}


def test_a_late_answer_that_the_database_refuses_stops_no_other(
    lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another caller has lost two requests; the answer to the first cannot be recorded, that to the second can."""
    first, second = left(lab, think_once), left(lab, think_once)
    held = Held()
    wire.script("talk", Turn("done", faults=[held]))

    async def act(caller: Caller) -> None:
        record = caller.record_late

        def refused(run: UUID, *answer: Any) -> bool:
            if run == first.id:
                fetch("SELECT 1 / 0")
            return record(run, *answer)

        monkeypatch.setattr(caller, "record_late", refused)
        await until(caller, lambda: len(wire.requests) == 2)
        await in_database_thread(lambda: ModelCall.objects.all().delete())
        assert await in_database_thread(rows.hand_back_abandoned) == 2
        held.release()
        await answered(caller, 2)
        await until(caller, lambda: not caller.ended and not caller.tasks)

    with_a_caller(act)

    assert lab.go_on(second).result == "done"
    assert Run.objects.get(pk=first.pk).status == "uncertain" or lab.go_on(first).status == "uncertain"


def test_an_answer_that_the_database_refuses_by_no_fault_of_its_own_is_kept_and_stops_no_other(
    lab: Lab, wire: Wire
) -> None:
    """As the trigger of a team may do, or a right that misses: what is paid is recorded once that is over."""
    first, second, third = left(lab, think), left(lab, think), left(lab, think)
    execute(
        f"""
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
          IF NEW.run_id = '{first.id}' THEN RAISE EXCEPTION 'not now'; END IF; RETURN NEW; END $$;
        CREATE TRIGGER refuse BEFORE INSERT ON runs_step FOR EACH ROW EXECUTE FUNCTION refuse()
        """
    )

    async def act(caller: Caller) -> None:
        try:
            await until(caller, lambda: len(wire.requests) == 3 and len(caller.tasks) == len(caller.ended) == 1)
        finally:
            await in_database_thread(execute, "DROP FUNCTION refuse CASCADE")
        await until(caller, lambda: not caller.ended and not caller.tasks)

    with_a_caller(act)

    assert [lab.go_on(run).result for run in (first, second, third)] == ["done"] * 3
    assert wire.asked(first.id) == {0: 1}


def test_a_stop_cuts_a_request_at_once_and_not_at_the_next_look(
    lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runs.calls.caller.WHILE_BUSY", 600.0)
    run = left(lab, think)
    wire.script("talk", Turn("done", faults=[Held()]))

    async def act(caller: Caller) -> None:
        caller.bell.listen()
        await until(caller, lambda: bool(wire.requests))
        await caller.look()
        await in_database_thread(lambda: stop_agents(run.agent, by="a test", reason="a test"))
        async with asyncio.timeout(20):
            while caller.tasks:
                await caller.bell.wait(600)
                await caller.look()

    with_a_caller(act)

    assert ModelCall.objects.get().owner_id is None
