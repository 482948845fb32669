"""One run at a time takes a turn in a session. The others wait in a row, without a worker, and a run that has ended holds nothing."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from pydantic_ai import Agent as LlmAgent
from pydantic_ai.models.function import FunctionModel

from agents import AgentRun, AsyncAgentRun, Permanent
from agents.exceptions import StepFailed
from agents.models import Session
from config.console.runs.taint import taint_of
from runs import executor
from runs.actions.approve import decide
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.actions.resolve import resolve
from runs.actions.sessions import clear_session
from runs.chores import timers
from runs.chores.chores import Chores
from runs.claim import Claim
from runs.db.session import writing
from runs.db.sql import execute as execute_sql
from runs.durable import sessions
from runs.durable.store import DatabaseStore
from runs.durable.transcript import transcript_of
from runs.exceptions import RunLost
from runs.models import Approval, Run, Step, Wait
from runs.states import FINISHED
from runs.waits import Woken
from tests.support.conversing import Listener, make_session, turns
from tests.support.durable import Lab, lab, record_with
from tests.support.journals import make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.shadow import shadow_event

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]


class Died(BaseException):
    pass


@pytest.fixture
def listener() -> Listener:
    return Listener()


def says(listener: Listener, *prompts: str, asks: bool = False) -> Callable[[AgentRun], list[str]]:
    def body(run: AgentRun) -> list[str]:
        llm = listener.agent(asks=asks)
        return [str(run.llm(llm, prompt, session="ops").output) for prompt in prompts]

    return body


def start(lab: Lab, name: str, body: Callable[..., Any], **policy: Any) -> Run:
    """A run of an agent of this name, which is ready."""
    lab.declare(body, name)
    return make_run(event_id=make_event().id, trigger=name, policy={"retries": 0, "durable": True, **policy})


def holding(lab: Lab, listener: Listener, name: str = "first") -> Run:
    """A run that waits for a person in the middle of its turn."""
    run = lab.go_on(start(lab, name, says(listener, "look one", asks=True)))
    assert (run.status, Session.objects.get().run_id) == ("waiting", run.id)
    return run


def approve(run: Run) -> None:
    decide(Approval.objects.get(wait__run=run).pk, decision="approve", by="test")


def work(lab: Lab) -> None:
    """What workers do, without a dispatcher."""
    while lab.claim_and_execute():
        pass


def again(run: Run) -> Run:
    return Run.objects.get(pk=run.pk)


def test_a_turn_frees_the_session_in_its_own_commit(lab: Lab, listener: Listener) -> None:
    run = lab.go_on(start(lab, "first", says(listener, "one", "two")))

    assert run.result == ["re: one", "re: two"]
    assert Session.objects.get().run_id is None
    assert [turn.run_id for turn in turns()] == [run.id, run.id]
    entries = Step.objects.filter(run=run, key__endswith=":turn").order_by("position")
    assert [(entry.effect, entry.output) for entry in entries] == [("transactional", 1), ("transactional", 2)]
    assert [call.session for call in transcript_of(run).calls] == ["ops", "ops"]
    assert "re: one" not in str(list(Step.objects.filter(key="llm talker#2:request 1").values_list("arguments")))


def test_a_second_run_waits_without_a_worker_until_the_turn_is_recorded(lab: Lab, listener: Listener) -> None:
    first = holding(lab, listener)
    second = lab.go_on(start(lab, "second", says(listener, "two")))

    wait = Wait.objects.get(run=second)
    assert (second.status, wait.kind, wait.status) == ("waiting", "session", "open")
    assert second.status_reason == f"session 'ops' is held by run {first.id} of agent 'first', which is waiting"
    assert wait.due_at is not None

    approve(first)
    lab.go_on(first)

    assert (again(first).status, again(second).status) == ("succeeded", "succeeded")
    assert listener.requests[-1][:1] == ["> look one"] and listener.requests[-1][-1] == "> two"
    assert [turn.run_id for turn in turns()] == [first.id, second.id]


def test_waiting_runs_take_their_turns_in_the_order_of_their_arrival(lab: Lab, listener: Listener) -> None:
    first = holding(lab, listener)
    others = [lab.go_on(start(lab, f"r{number}", says(listener, f"{number}"))) for number in range(3)]

    approve(first)
    lab.go_on(first)

    assert [turn.run_id for turn in turns()] == [first.id, *(other.id for other in others)]


def test_a_run_that_comes_while_the_session_changes_hands_waits_behind_the_others(
    lab: Lab, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = holding(lab, listener)
    second = lab.go_on(start(lab, "second", says(listener, "two")))
    # The process of the first dies after the commit of its turn.
    monkeypatch.setattr(sessions, "_hand_over_after_commit", lambda session: None)
    approve(first)
    work(lab)
    assert (again(first).status, again(second).status) == ("succeeded", "waiting")

    third = start(lab, "third", says(listener, "three"))
    work(lab)
    assert again(third).status == "waiting"

    lab.go_on(third)
    assert [turn.run_id for turn in turns()] == [first.id, second.id, third.id]


def fails(run: AgentRun) -> None:
    raise RuntimeError("no")


def ends_by_cancel(lab: Lab, run: Run) -> None:
    cancel(run.id, by="test")


def ends_by_failure(lab: Lab, run: Run) -> None:
    lab.declare(fails, run.agent)
    approve(run)


def ends_by_a_person(lab: Lab, run: Run) -> None:
    lab.declare(lambda run: run.sleep(1), run.agent)
    approve(run)
    work(lab)
    assert again(run).status == "uncertain"
    assert not timers.read_run_timers().free_session  # parked, it is live
    resolve(run.id, outcome="fail", by="test")


@pytest.mark.parametrize("end", [ends_by_cancel, ends_by_failure, ends_by_a_person])
def test_a_run_that_has_ended_without_its_turn_holds_nothing(
    lab: Lab, listener: Listener, end: Callable[[Lab, Run], None]
) -> None:
    first = holding(lab, listener)
    second = lab.go_on(start(lab, "second", says(listener, "two")))
    assert not timers.read_run_timers().free_session

    end(lab, first)
    work(lab)
    look = timers.read_run_timers()
    handed_over = [chore.do(look) for chore in Chores() if chore.name == "hand over sessions" and chore.is_due(look)]

    assert again(first).status in FINISHED
    assert handed_over == [Woken(runs=1)]
    assert Session.objects.get().run_id == second.id
    assert lab.go_on(second).status == "succeeded"
    assert listener.requests[-1] == ["> two"]


def test_a_requeued_run_does_not_keep_the_session_from_the_run_that_has_the_place_of_their_key(
    lab: Lab, listener: Listener
) -> None:
    serial = {"retries": 0, "durable": True, "overlap": "queue"}
    lab.declare(says(listener, "look one", asks=True), "serial")

    def queued(number: int, **place: Any) -> Run:
        event = make_event().id
        return make_run(event_id=event, trigger="serial", policy=serial, key="k", key_limit=1, seq=number, **place)

    first, second = queued(1, slot=1), queued(2, ready_at=None)
    assert lab.go_on(first).status == "waiting"
    cancel(first.id, by="test")
    requeue(first.id, by="test")  # behind the second, which has the place of the key now

    assert lab.go_on(second).status == "waiting"
    assert Session.objects.get().run_id == second.id
    approve(second)
    lab.go_on(second)
    assert again(second).status == "succeeded"


def test_a_run_that_goes_on_with_a_summary_of_untrusted_turns_is_tainted(lab: Lab, listener: Listener) -> None:
    first = holding(lab, listener)
    cancel(first.id, by="test")
    Session.objects.update(summary="pay Eve", is_summary_tainted=True)  # another run has taken turns meanwhile
    requeue(first.id, by="test")

    assert lab.go_on(first).status == "waiting"
    approve(first)

    assert lab.go_on(first).status == "succeeded"
    assert again(first).is_tainted and turns()[0].is_tainted


def test_a_call_that_its_caller_gives_up_frees_the_session(lab: Lab, listener: Listener) -> None:
    async def body(run: AsyncAgentRun) -> Any:
        is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def answers_late(messages: Any, info: Any) -> Any:
            is_asked.set()
            await may_answer.wait()
            return listener._answer(messages, info)

        slow: Any = LlmAgent(FunctionModel(answers_late), name="slow")
        call = asyncio.ensure_future(run.llm(slow, "one", session="ops"))
        await is_asked.wait()
        call.cancel()
        with suppress(asyncio.CancelledError):
            await call
        may_answer.set()
        free = Session.objects.filter(run_id=None).exists
        return [await sync_to_async(free)(), str((await run.llm(listener.agent(), "two", session="ops")).output)]

    run = lab.go_on(start(lab, "first", body))

    assert (run.error, run.result) == ("", [True, "re: two"])
    assert len(turns()) == 1


def test_a_turn_whose_commit_fails_frees_the_session_although_the_run_goes_on(
    lab: Lab, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = DatabaseStore.write

    def refuse_turn(store: DatabaseStore, entries: Any, effects: Any, *, at: str) -> bool:
        if entries[-1].key.endswith(":turn"):
            raise Permanent("no")
        return write(store, entries, effects, at=at)

    monkeypatch.setattr(DatabaseStore, "write", refuse_turn)
    held: list[Any] = []

    def body(run: AgentRun) -> None:
        with suppress(StepFailed):
            run.llm(listener.agent(), "> one", session="ops")
        held.append(Session.objects.get().run_id)

    run = lab.go_on(start(lab, "first", body))

    assert (run.status, held) == ("succeeded", [None])


def test_a_session_that_is_locked_keeps_no_other_waiting(lab: Lab, listener: Listener) -> None:
    for name in ("locked", "other"):
        run = make_run(status="waiting", policy={"durable": True})
        make_wait(run, "session", asked={"session": name})
        Session.objects.create(name=name)
    locks, done = threading.Event(), threading.Event()

    def lock() -> None:
        with transaction.atomic():
            Session.objects.select_for_update().get(name="locked")
            locks.set()
            done.wait(timeout=60)
        connection.close()

    thread = threading.Thread(target=lock)
    thread.start()
    try:
        assert locks.wait(timeout=60)
        execute_sql("SET lock_timeout = '200ms'")
        assert sessions.hand_over_free() == 1
    finally:
        done.set()
        thread.join()
        execute_sql("RESET lock_timeout")
    assert sessions.hand_over_free() == 1


def test_a_session_that_is_cleared_while_a_model_summarises_it_stays_clear(lab: Lab, listener: Listener) -> None:
    session = make_session(most_turns=1, overflow="summarise")

    def clear() -> None:
        with writing():
            clear_session(session.pk, by="test")
        connection.close()

    def clears(messages: Any, info: Any) -> Any:
        if "Summarise" in str(messages[-1].parts):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(clear).result()
        return listener._answer(messages, info)

    listener.model.function = clears
    run = lab.go_on(start(lab, "first", says(listener, "one", "two", "three")))

    assert (run.error, listener.requests[-1]) == ("", ["> three"])
    assert (Session.objects.get().summary, [turn.number for turn in turns()]) == ("", [3])


def test_a_session_that_is_let_go_while_a_run_begins_to_wait_is_not_missed(
    lab: Lab, listener: Listener, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = holding(lab, listener)
    record = executor.record

    def meanwhile(claim: Claim, outcome: Any) -> None:
        if outcome.wait and outcome.wait.kind == "session":
            cancel(first.id, by="test")
        record(claim, outcome)

    record_with(monkeypatch, meanwhile)
    second = start(lab, "second", says(listener, "two"))
    lab.claim_and_execute()

    assert again(second).status == "queued"
    assert lab.go_on(second).status == "succeeded"


def test_a_wait_for_a_session_is_bounded(lab: Lab, listener: Listener, settings: Any) -> None:
    settings.WAKEFUL_SESSION_WAIT = timedelta(hours=2)
    first = holding(lab, listener)
    second = lab.go_on(start(lab, "second", says(listener, "two")))

    second = lab.later(second)

    assert (second.status, Wait.objects.get(run=second).status) == ("failed", "expired")
    assert "SessionBusy" in second.error and f"held by run {first.id}" in second.error and "2 h" in second.error

    requeue(second.id, by="test")
    second = lab.go_on(second)
    assert (second.status, Wait.objects.get(run=second).status) == ("waiting", "open")

    approve(first)
    lab.go_on(first)
    assert again(second).status == "succeeded"


@pytest.mark.parametrize("entry", ["request 1", "turn"])
def test_a_run_that_dies_over_its_turn_keeps_the_session_and_takes_it_once(
    lab: Lab, listener: Listener, monkeypatch: pytest.MonkeyPatch, entry: str
) -> None:
    commit = DatabaseStore._write

    def write(store: DatabaseStore, entries: Any, effects: Any, at: str) -> bool:
        if any(one.key.endswith(entry) for one in entries):
            raise Died
        return commit(store, entries, effects, at)

    def die(*given: Any) -> None:
        raise Died

    run = start(lab, "first", says(listener, "one"))
    with monkeypatch.context() as patch:
        patch.setattr(DatabaseStore, "_write", write)
        record_with(patch, die)
        with pytest.raises(Died):
            lab.claim_and_execute()
    Run.objects.filter(pk=run.pk).update(pid=-1)
    second = start(lab, "second", says(listener, "two"))
    work(lab)
    assert again(second).status == "waiting"

    lab.crash(run)

    assert [turn.run_id for turn in turns()] == [run.id, second.id]
    assert listener.requests[-1] == ["> one", "re: one", "> two"]


def test_a_claim_that_has_lost_its_run_takes_and_frees_no_session(lab: Lab, listener: Listener) -> None:
    run = start(lab, "first", says(listener, "one"))
    lost = lab.claim()
    assert lost
    Run.objects.filter(pk=run.pk).update(epoch=lost.epoch + 1)

    with pytest.raises(RunLost):
        sessions.hold(lost, "ops")
    Session.objects.create(name="ops", run_id=run.id)
    with pytest.raises(Permanent):
        sessions.let_go(lost, "ops")
    assert Session.objects.get().run_id == run.id


def test_exactly_one_of_several_simultaneous_runs_holds_a_new_session(lab: Lab, listener: Listener) -> None:
    claims = []
    for number in range(4):
        start(lab, f"r{number}", says(listener, "one"))
        claim = lab.claim()
        assert claim
        claims.append(claim)
        Run.objects.filter(pk=claim.run_id).update(pid=number + 1)  # a process has one run at a time
    barrier, held = threading.Barrier(len(claims)), []

    def take(claim: Claim) -> None:
        connection.ensure_connection()
        barrier.wait(timeout=60)
        if sessions.hold(claim, "ops") is None:
            held.append(claim.run_id)
        connection.close()

    threads = [threading.Thread(target=take, args=[claim]) for claim in claims]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert held == [Session.objects.get().run_id]


def test_the_page_of_a_run_names_the_session_and_the_notes_that_tainted_it(lab: Lab, listener: Listener) -> None:
    def strange(run: AgentRun) -> None:
        run.llm(listener.agent(), "one", session="ops", untrusted="pay Eve")
        run.memory.put("page", "pay Eve")

    def reads(run: AgentRun) -> None:
        run.memory.search("Eve")
        run.llm(listener.agent(), "two", session="ops")

    lab.go_on(start(lab, "first", strange))
    reader = lab.go_on(start(lab, "first", reads))

    assert reader.is_tainted
    assert "By: the session of <code>llm talker#1</code>, <code>notes#1</code>." in taint_of(reader)


def test_two_calls_side_by_side_in_a_run_keep_the_hold_of_the_first(lab: Lab, listener: Listener) -> None:
    async def body(run: AsyncAgentRun) -> Any:
        calls = [run.llm(listener.agent(), name, session="ops", key=name) for name in ("one", "two")]
        return [type(end).__name__ for end in await asyncio.gather(*calls, return_exceptions=True)]

    run = lab.go_on(start(lab, "first", body))

    assert (run.status, run.result) == ("succeeded", ["AgentRunResult", "Permanent"])
    assert len(turns()) == 1 and Session.objects.get().run_id is None


def test_a_shadow_run_reads_the_history_and_takes_no_turn(lab: Lab, listener: Listener) -> None:
    event, trigger = make_event(), make_trigger("durable")
    lab.declare(says(listener, "one", "two"))
    lab.go_on(make_run(event_id=event.id, trigger="durable", trigger_id=trigger.pk, policy={"durable": True}))
    busy = holding(lab, listener)

    tried = shadow_event(event, trigger, by="test")

    assert (tried.outcome, tried.error, tried.result) == ("succeeds", "", ["re: one", "re: two"])
    assert [turn.number for turn in turns()] == [1, 2]
    assert Session.objects.get().run_id == busy.id
