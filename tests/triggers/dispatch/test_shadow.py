"""A shadow run shows what an event would do today, and leaves nothing behind."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest
from django.contrib.auth.models import Group, Permission, User
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.db.backends.signals import connection_created

from agents import AgentRun, AsyncAgentRun, Permanent, Retry, StepFailed
from agents.models import AgentState
from runs.db.sql import fetch
from runs.models import AuditEntry, Run
from runs.shadow.shadow import Outcome, Shadow
from tests.runs.test_commands import run_command
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.shadow import candidates, shadow_event
from triggers.exceptions import NotWanted, PayloadRemoved
from triggers.models import Event, Trigger
from triggers.retention.payloads import remove_payloads

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)
TABLES = """
SELECT relid::regclass::text FROM pg_stat_user_tables WHERE relname NOT IN ('runs_auditentry', 'runs_worker') ORDER BY 1
"""


def contents() -> dict[str, Any]:
    """What stands in every table."""
    return {
        table: fetch(f"SELECT count(*), coalesce(sum(hashtextextended(row::text, 0)), 0) FROM {table} row")  # noqa: S608
        for (table,) in fetch(TABLES)
    }


class Scene:
    """An event that a trigger wants, and the agent behind it."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab

    def set(self, body: Callable[..., Any], *, durable: bool = True, data: Any = None, **fields: Any) -> Event:
        self.lab.declare(body, durable=durable)
        self.trigger = make_trigger("durable", policy={"durable": durable, "retries": 0}, **fields)
        self.event = make_event(data=data)
        return self.event

    def change(self, body: Callable[..., Any], *, durable: bool = True) -> None:
        """The code of today."""
        self.lab.declare(body, durable=durable)

    def happen(self) -> Run:
        """The event is dispatched, and its run goes as far as it can."""
        while self.lab.claim_and_execute() or self.lab.look():
            pass
        return Run.objects.latest("seq")

    def shadow(self) -> Shadow:
        """A shadow run, after which everything is as it was."""
        before = contents()
        tried = shadow_event(self.event, self.trigger, by="test")
        assert contents() == before
        return tried


@pytest.fixture
def scene(lab: Lab) -> Iterator[Scene]:
    yield Scene(lab)


def hooked(name: str) -> None:
    Group.objects.create(name=name)


# An atomic agent


def test_a_shadow_run_shows_changed_rows_statements_and_effects(scene: Scene) -> None:
    Group.objects.create(name="old")

    def body(run: AgentRun) -> dict[str, Any]:
        Group.objects.filter(name="old").update(name="older")
        Group.objects.bulk_create([Group(name=name) for name in run.event.data["names"]])
        User.objects.create(username="gone").delete()
        run.state.set("seen", 1)
        run.emit("visitor.greeted", {"n": 2}, subject="s")
        run.notify("Hello", urgency="low")
        run.wake_in("1d", {"again": True}, reason="tomorrow")
        transaction.on_commit(lambda: hooked("on commit"))
        return {"greeted": 2}

    scene.set(body, durable=False, data={"names": ["a", "b"]})
    tried = scene.shadow()

    assert (tried.outcome, tried.result) == (Outcome.SUCCEEDS, {"greeted": 2})
    assert {change.table: (change.inserted, change.updated, change.deleted) for change in tried.changes} == {
        "agents_agentstate": (1, 0, 0),
        "auth_group": (2, 1, 0),
        "auth_user": (1, 0, 1),
    }
    first, second, *_ = tried.statements
    assert first.sql.startswith('UPDATE "auth_group"')
    assert (first.parameters, first.rows, first.state) == ('["older", "old"]', 1, "")
    assert (second.parameters, second.rows) == ('[["a", "b"]]', 2)
    assert [(event.type, event.data, event.subject) for event in tried.left.emissions] == [
        ("visitor.greeted", {"n": 2}, "s")
    ]
    assert [(notice.text, notice.urgency) for notice in tried.left.notices] == [("Hello", "low")]
    assert [wake.reason for wake in tried.left.wakes] == ["tomorrow"]
    assert 0 < tried.seconds < 10


def test_a_body_that_raises_would_fail_and_changes_nothing(scene: Scene) -> None:
    def body(run: AgentRun) -> None:
        Group.objects.create(name="a")
        raise ValueError("no such visitor")

    scene.set(body, durable=False)
    tried = scene.shadow()

    assert (tried.outcome, tried.error) == (Outcome.FAILS, "ValueError: no such visitor")
    assert 'raise ValueError("no such visitor")' in tried.traceback
    assert tried.changes == []
    assert [statement.state for statement in tried.statements] == ["undone"]


@pytest.mark.parametrize(("error", "outcome"), [(Retry("later"), Outcome.RETRIES), (Permanent("never"), Outcome.FAILS)])
def test_a_retry_by_the_agent_is_reported(scene: Scene, error: Exception, outcome: Outcome) -> None:
    def body(run: AgentRun) -> None:
        raise error

    scene.set(body, durable=False)

    assert scene.shadow().outcome == outcome


def test_rows_rolled_back_to_a_savepoint_are_not_counted(scene: Scene) -> None:
    Group.objects.create(name="known")

    def body(run: AgentRun) -> None:
        for name in ("new", "known"):
            try:
                with transaction.atomic():
                    Group.objects.create(name=f"{name} before")
                    Group.objects.create(name=name)
            except IntegrityError:
                Group.objects.create(name=f"{name} instead")

    scene.set(body, durable=False)
    tried = scene.shadow()

    assert [(change.table, change.inserted) for change in tried.changes] == [("auth_group", 3)]
    assert [statement.state for statement in tried.statements] == ["", "", "undone", "failed", ""]


def test_a_deferred_constraint_fails_the_shadow_run(scene: Scene) -> None:
    def body(run: AgentRun) -> None:
        Permission.objects.create(name="x", codename="x", content_type_id=999_999)

    scene.set(body, durable=False)
    tried = scene.shadow()

    assert tried.outcome == Outcome.FAILS
    assert "IntegrityError" in tried.error


@pytest.mark.parametrize("statement", ["COMMIT", " rollback", "SELECT 1; COMMIT", "END"])
def test_no_statement_of_a_shadow_run_ends_the_transaction(scene: Scene, statement: str) -> None:
    def body(run: AgentRun) -> None:
        Group.objects.create(name="a")
        with connection.cursor() as cursor:
            cursor.execute(statement)

    scene.set(body, durable=False)
    tried = scene.shadow()

    assert tried.outcome == Outcome.FAILS
    assert "one transaction" in tried.error


def test_a_do_block_may_begin_and_end(scene: Scene) -> None:
    def body(run: AgentRun) -> None:
        with connection.cursor() as cursor:
            cursor.execute("DO $$ BEGIN INSERT INTO auth_group (name) VALUES ('a'); END $$")

    scene.set(body, durable=False)

    assert [change.inserted for change in scene.shadow().changes] == [1]


@pytest.mark.parametrize(
    "call",
    [
        lambda: socket.create_connection(("127.0.0.1", 9), timeout=1),
        lambda: subprocess.run([sys.executable, "-V"], check=True),
    ],
)
def test_a_shadow_run_makes_no_calls_and_starts_no_process(scene: Scene, call: Callable[[], Any]) -> None:
    errors: list[str] = []

    def attempt() -> None:
        try:
            call()
        except Exception as error:
            errors.append(type(error).__name__)

    def body(run: AgentRun) -> None:
        thread = Thread(target=attempt)
        thread.start()
        thread.join()
        call()

    scene.set(body, durable=False)
    tried = scene.shadow()

    assert tried.error.startswith("NetworkRefused")
    assert errors == ["NetworkRefused"]


def test_other_sessions_of_a_shadow_runs_threads_may_only_read(scene: Scene) -> None:
    errors: list[str] = []

    def write() -> None:
        try:
            Group.objects.create(name="from a thread")
        except Exception as error:
            errors.append(str(error))
        finally:
            connection.close()

    def body(run: AgentRun) -> int:
        thread = Thread(target=write)
        thread.start()
        thread.join()
        return Group.objects.count()

    scene.set(body, durable=False)

    assert scene.shadow().outcome == Outcome.SUCCEEDS
    assert "read-only transaction" in errors[0]


def test_another_database_is_refused(scene: Scene) -> None:
    def body(run: AgentRun) -> None:
        other = connection.copy(alias="other")
        connection_created.send(sender=type(other), connection=other)  # as at its first query

    scene.set(body, durable=False)

    assert "cannot use database 'other'" in scene.shadow().error


def test_a_shadow_run_waits_at_most_a_second_for_a_lock(scene: Scene) -> None:
    group = Group.objects.create(name="held")
    scene.set(lambda run: Group.objects.filter(pk=group.pk).update(name="mine"), durable=False)
    holder = connection.copy()
    try:
        with holder.cursor() as cursor:
            cursor.execute("BEGIN")
            cursor.execute("SELECT FROM auth_group WHERE id = %s FOR UPDATE", [group.pk])
        began = time.monotonic()
        tried = scene.shadow()
        took = time.monotonic() - began
    finally:
        holder.close()

    assert tried.outcome == Outcome.STOPS
    assert tried.stop
    assert tried.stop.kind == "lock"
    assert took > 0.9


def test_a_shadow_run_ends_at_its_time_limit(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.shadow.shadow.LIMIT", 0.3)
    scene.set(lambda run: time.sleep(20), durable=False)
    tried = scene.shadow()

    assert tried.stop
    assert tried.stop.kind == "limit"
    assert tried.seconds < 20


def test_a_shadow_run_shows_the_first_of_very_many_statements(scene: Scene) -> None:
    def body(run: AgentRun) -> None:
        Group.objects.filter(name="y" * 3000).update(name="z")
        for number in range(211):
            Group.objects.create(name=str(number))

    scene.set(body, durable=False)
    tried = scene.shadow()

    assert (len(tried.statements), tried.statement_count) == (200, 212)
    assert len(tried.statements[0].parameters) == 2001


def test_an_async_atomic_agent_is_tried_alike(scene: Scene) -> None:
    async def body(run: AgentRun) -> int:
        await Group.objects.acreate(name="a")
        run.emit("seen")
        return await Group.objects.acount()

    scene.set(body, durable=False)
    tried = scene.shadow()

    assert (tried.result, [change.inserted for change in tried.changes]) == (1, [1])
    assert [event.type for event in tried.left.emissions] == ["seen"]


# A durable agent


def test_transactional_steps_are_done_and_calls_and_waits_answered_by_the_journal(scene: Scene) -> None:
    calls: list[str] = []

    def fetch_name() -> str:
        calls.append("fetch")
        return "Ada"

    def before(run: AgentRun) -> str:
        name: str = run.step("fetch", fetch_name, effect="read")
        run.sleep(0)
        run.step("write", lambda: Group.objects.create(name=f"{name} then").pk)
        run.emit("greeted", {"name": name})
        return name

    def today(run: AgentRun) -> str:
        name: str = run.step("fetch", fetch_name, effect="read")
        run.sleep(0)
        run.step("write", lambda: Group.objects.create(name=f"{name} today").pk)
        run.emit("greeted", {"name": name, "today": True})
        return f"{name} today"

    scene.set(before)
    run = scene.happen()
    assert run.status == "succeeded"
    scene.change(today)
    tried = scene.shadow()

    assert (tried.outcome, tried.result, calls) == (Outcome.SUCCEEDS, "Ada today", ["fetch"])
    assert [(entry.key, entry.how) for entry in tried.entries] == [
        ("fetch", "journal"),
        ("sleep#1", "journal"),
        ("write", "done"),
        ("emit greeted#1", "done"),
    ]
    assert (tried.run_id, tried.origin, tried.not_asked) == (run.id, run.id, [])
    assert [change.table for change in tried.changes] == ["auth_group"]
    assert [event.data for event in tried.left.emissions] == [{"name": "Ada", "today": True}]


@pytest.mark.parametrize("effect", ["read", "idempotent", "at_most_once"])
def test_a_shadow_run_stops_before_a_call_and_shows_its_arguments(scene: Scene, effect: Any) -> None:
    calls: list[Any] = []

    def body(run: AgentRun) -> None:
        run.step("write", lambda: Group.objects.create(name="a").pk)
        try:
            run.step("charge", calls.append, {"cents": 4200}, key=7, effect=effect)
        except BaseException:  # an agent that catches everything
            run.step("after", lambda: Group.objects.create(name="b").pk)

    scene.set(body)
    tried = scene.shadow()

    assert tried.outcome == Outcome.STOPS
    assert tried.stop
    assert (tried.stop.kind, tried.stop.key, tried.stop.effect) == ("call", "charge:7", effect)
    assert tried.stop.arguments == [{"cents": 4200}]
    assert calls == []
    assert [change.inserted for change in tried.changes] == [1]


@pytest.mark.parametrize(
    ("wait", "message"),
    [
        (lambda run: run.sleep("3d"), "3 d"),
        (lambda run: run.wait_for_event("paid", match={"n": 7}, timeout="7d"), "an event paid with n = 7, at most 7 d"),
        (lambda run: run.ask_approval("Go?", arguments=[1]), "an approval: Go?"),
        (lambda run: run.gather(run.spawn("durable")), "1 child runs"),
    ],
)
def test_a_shadow_run_stops_before_a_wait(scene: Scene, wait: Callable[[AgentRun], Any], message: str) -> None:
    scene.set(lambda run: wait(run))
    tried = scene.shadow()

    assert tried.stop
    assert tried.stop.kind == "wait"
    assert message in tried.stop.said


def test_an_approval_of_something_else_is_no_answer(scene: Scene) -> None:
    scene.set(lambda run: run.sleep("1d"))
    run = scene.happen()
    scene.lab.later(run)
    scene.change(lambda run: run.wait_for_event("paid", key="x"))

    assert scene.shadow().stop


def test_children_are_shown_and_those_of_the_original_answer(scene: Scene) -> None:
    def body(run: AgentRun) -> Any:
        return run.gather(*[run.spawn("picker", {"item": item}, key=item) for item in "ab"])

    scene.lab.declare(lambda run: run.input["item"], name="picker", durable=False)
    scene.set(body)
    assert scene.happen()
    tried = scene.shadow()

    assert (tried.outcome, tried.result) == (Outcome.SUCCEEDS, ["a", "b"])
    assert [child.input for child in tried.left.children] == [{"item": "a"}, {"item": "b"}]


def test_a_child_of_an_unknown_agent_fails_the_shadow_run(scene: Scene) -> None:
    scene.set(lambda run: run.spawn("nobody") and None)

    assert "there is no agent 'nobody'" in scene.shadow().error


def test_a_shadow_run_has_the_values_of_the_past_run_and_the_state_of_today(scene: Scene) -> None:
    def body(run: AgentRun) -> Any:
        seen = run.state.get("seen", 0)
        run.state.set("seen", seen + 1)
        return [run.random(), seen]

    scene.set(body)
    then: Any = scene.happen().result
    tried = scene.shadow()

    assert tried.result == [then[0], 1]
    assert AgentState.objects.get().value == 1


def test_a_step_that_fails_is_undone_and_the_body_goes_on(scene: Scene) -> None:
    def bad() -> None:
        Group.objects.create(name="gone")
        raise ValueError("no")

    def body(run: AgentRun) -> str:
        try:
            run.step("bad", bad)
        except StepFailed as error:
            run.step("good", lambda: Group.objects.create(name="kept").pk)
            return error.kind
        return ""

    scene.set(body)
    tried = scene.shadow()

    assert tried.result == "ValueError"
    assert [change.inserted for change in tried.changes] == [1]
    assert [(entry.key, entry.how) for entry in tried.entries] == [("bad", "failed"), ("good", "done")]


def test_a_last_step_that_failed_would_be_called_again(scene: Scene) -> None:
    def call() -> None:
        raise ConnectionError("down")

    scene.set(lambda run: run.step("call", call, effect="idempotent"))
    assert scene.happen().status == "failed"
    tried = scene.shadow()

    assert tried.stop
    assert tried.stop.key == "call"


def test_entries_that_todays_code_does_not_use_are_listed(scene: Scene) -> None:
    def before(run: AgentRun) -> None:
        run.step("first", lambda: 1)
        run.step("second", lambda: 2)

    scene.set(before)
    scene.happen()
    scene.change(lambda run: run.step("second", lambda: 2))

    assert scene.shadow().not_asked == ["first"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_transactional_step_in_a_thread_cannot_be_followed(scene: Scene) -> None:
    def body(run: AgentRun) -> None:
        def in_thread() -> None:
            run.step("write", lambda: Group.objects.create(name="a").pk, key="t")

        thread = Thread(target=in_thread)
        thread.start()
        thread.join()

    scene.set(body)
    tried = scene.shadow()

    assert tried.stop
    assert tried.stop.kind == "thread"


def test_an_async_durable_agent_is_tried_alike(scene: Scene) -> None:
    async def fetched() -> int:
        return 7

    async def body(run: AsyncAgentRun) -> int:
        number: int = await run.step("fetch", fetched, effect="read")
        await run.step("write", lambda: Group.objects.create(name="a").pk)
        await run.ask_approval("Go on?")
        return number

    scene.set(body)
    stopped_at_once = scene.shadow()
    scene.happen()
    Group.objects.all().delete()
    tried = scene.shadow()

    assert stopped_at_once.stop
    assert stopped_at_once.stop.key == "fetch"
    assert tried.stop
    assert (tried.stop.key, tried.stop.said) == ("approval#1", "it would now wait for an approval: Go on?")
    assert [change.inserted for change in tried.changes] == [1]


# Which trigger, and whether


def test_the_triggers_that_want_the_event_today_or_ran_on_it_are_named(scene: Scene) -> None:
    scene.set(lambda run: None, durable=False, data={"vip": False})
    scene.happen()
    Trigger.objects.filter(pk=scene.trigger.pk).update(filter="event.data.vip")
    make_trigger("another", agent="durable", overlap="skip", paused_at=None)
    make_trigger("deaf", agent="durable", types=["other"])
    make_trigger("off", agent="durable", enabled=False)

    found = candidates(scene.event)

    assert [(one.trigger.slug, one.why_not, one.run is not None) for one in found] == [
        ("another", "", False),
        ("durable", "its filter event.data.vip is false", True),
    ]
    with pytest.raises(NotWanted, match=r"its filter event\.data\.vip is false"):
        shadow_event(scene.event, Trigger.objects.get(slug="durable"), by="test")


def test_todays_input_mapping_counts(scene: Scene) -> None:
    scene.set(lambda run: run.input, durable=False, data={"n": 7})
    Trigger.objects.update(input={"number": "event.data.n * 2"})
    scene.trigger.refresh_from_db()

    assert scene.shadow().result == {"number": 14}


def test_a_shadow_run_gets_all_events_of_a_run_with_several(scene: Scene) -> None:
    scene.set(lambda run: [event.data for event in run.events], durable=False, data=1)
    second = make_event(data=2)
    run = scene.happen()
    Run.objects.filter(pk=run.pk).delete()
    Run.objects.filter(trigger_id=scene.trigger.pk).update(event_ids=[scene.event.pk, second.pk])

    assert scene.shadow().result == [1, 2]


def test_an_event_without_its_payload_is_refused(scene: Scene) -> None:
    event = scene.set(lambda run: None)
    remove_payloads([event.pk])
    event.refresh_from_db()

    with pytest.raises(PayloadRemoved, match="lost its payload"):
        shadow_event(event, scene.trigger, by="test")
    with pytest.raises(PayloadRemoved):
        candidates(event)


def test_the_audit_log_names_who_started_a_shadow_run(scene: Scene) -> None:
    scene.set(lambda run: None)
    scene.shadow()

    entry = AuditEntry.objects.get(action="shadow")
    assert (entry.by, entry.object_id, entry.detail) == ("test", str(scene.event.pk), {"trigger": "durable"})


# The command


def test_the_command_shows_it_in_words_and_as_json(scene: Scene) -> None:
    def body(run: AgentRun) -> dict[str, int]:
        print("chatter")
        Group.objects.create(name="a")
        run.emit("seen", {"n": 1})
        return {"n": 1}

    scene.set(body, durable=False)
    out, _, well = run_command("shadow", str(scene.event.pk))
    answer, _, _ = run_command("shadow", str(scene.event.pk), "--trigger", "durable", "--json")

    assert well
    assert 'durable: would succeed with {"n": 1}' in out
    assert "auth_group: 1 inserted, 0 updated, 0 deleted" in out
    [tried] = json.loads(answer)
    assert (tried["outcome"], tried["result"]) == ("succeeds", {"n": 1})
    assert tried["left"]["emissions"][0]["type"] == "seen"
    assert tried["changes"] == [{"table": "auth_group", "inserted": 1, "updated": 0, "deleted": 0}]


def test_the_command_refuses_in_a_sentence(scene: Scene) -> None:
    scene.set(lambda run: None, types=["other"])

    for arguments, message in [
        ((str(scene.event.pk),), "No trigger matches this event today"),
        ((str(scene.event.pk), "--trigger", "durable"), "does not match the event today"),
        ((str(scene.event.pk), "--trigger", "nobody"), "no such trigger"),
        (("7",), "no such event"),
    ]:
        with pytest.raises(CommandError, match=message):
            call_command("shadow", *arguments)
