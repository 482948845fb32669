"""After an erasure, and after retention of payloads, no column of any table holds the content of an event. Tables are read from
the catalogue, so one that comes later is searched as well."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now
from psycopg import sql

from agents.models import Checklist, ChecklistItem, MemoryNote, Session, SessionTurn
from config.retention import prune
from runs.actions.cancel import cancel
from runs.actions.fork import fork
from runs.actions.resolve import resolve
from runs.actions.signal import signal
from runs.models import NIL, AuditEntry, Notification, OutboxMessage, Run
from runs.states import RunStatus
from tests.support.journals import make_approval, make_child, make_step, make_wait
from tests.support.old_rows import ago, old_event, old_run
from tests.support.triggers import make_trigger
from triggers.models import Decision, Event, Gate
from triggers.retention.erasure import Selection, erase, erase_event

pytestmark = pytest.mark.django_db

MARK = "grace.hopper-planted"
COLUMNS = """
SELECT table_name, column_name FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
WHERE table_schema = 'public' AND table_type = 'BASE TABLE'
  AND data_type IN ('text', 'character varying', 'json', 'jsonb', 'bytea', 'ARRAY')
"""


def make_item(text: str, run: Run, **fields: Any) -> None:
    checklist, _ = Checklist.objects.get_or_create(agent="greeter")
    ChecklistItem.objects.create(checklist=checklist, text=text, position=0, last_run_id=run.id, **fields)


def places_of(text: str) -> set[str]:
    """Every table.column in which some row holds the text."""
    found = set()
    with connection.cursor() as cursor:
        cursor.execute(COLUMNS)
        for table, column in cursor.fetchall():
            names = {"table": sql.Identifier(table), "column": sql.Identifier(column)}
            statement = sql.SQL(
                "SELECT EXISTS (SELECT FROM {table} WHERE position(%s IN {table}.{column}::text) > 0"
                " OR position(%s IN {table}.{column}::text) > 0)"
            ).format(**names)
            cursor.execute(statement, [text, text.encode().hex()])
            if cursor.fetchone()[0]:
                found.add(f"{table}.{column}")
    return found


def a_story(*, days: float, subject: str = "", key: str = "", is_signalled: bool = True) -> Event:
    """An event that a durable run has handled: with steps, waits, an approval, a signal, a child and a fork; people have
    resolved, forked and signalled it. `subject` and `key` stay with retention."""
    named = f":{key}" if key else ""
    came = old_event(
        days, subject=subject, data={"name": MARK}, body=MARK.encode(), headers={"X": MARK}, data_error=f"not {MARK}"
    )
    fired = {"reason": MARK, "data": {"name": MARK}, "state": None, "revision": 0}
    run = old_run(
        came, status=RunStatus.UNCERTAIN, input={"name": MARK}, fired=fired, result=None, error=MARK, key=key or None
    )
    make_step(run, f"mail{named}", is_keyed=bool(key), arguments={"to": MARK}, output=MARK, error=MARK)
    make_wait(
        run, "event", status="done", key=f"reply{named}", is_keyed=bool(key), match={"from": MARK}, match_hash="1"
    )
    make_approval(run, question=f"Mail {MARK}?", detail=MARK, arguments={"to": MARK}, reason=MARK)
    make_step(run, f"charge{named}", status="started", is_keyed=bool(key), arguments={"card": MARK})
    if is_signalled:
        signal(run.id, name=f"hello {MARK}", by="admin:ada", data={"said": MARK})
        Event.objects.filter(dispatched_at=None).update(dispatched_at=Now())
    resolve(run.id, outcome="fail", by="admin:ada")
    copy = fork(run.id, step=f"charge{named}", by="admin:ada", input={"name": MARK}, has_input=True)
    cancel(copy.id, by="admin:ada")
    make_child(run, input={"name": MARK}, result=MARK)
    Notification.objects.filter(run_id=copy.id).update(text="asks again")  # a notification is kept as long as its run
    if key:
        Notification.objects.create(sender="greeter", run_id=run.id, text=f"{MARK} was here")
    session = Session.objects.create(name=f"story-{came.pk}", summary=MARK, last_number=2, used_at=ago(days=days))
    whose: dict[str, Any] = {"session": session, "agent": "greeter", "at": ago(days=days)}
    turn = {"messages": [{"said": MARK}], "characters": 20}
    SessionTurn.objects.create(number=1, run_id=run.id, is_summarised=True, characters=0, **whose)
    SessionTurn.objects.create(number=2, run_id=uuid4(), **turn, **whose)  # of another run, which was given the first
    if key:
        MemoryNote.objects.create(agent="greeter", key=MARK, text=f"{MARK} was here", run_id=run.id)
    Decision.objects.create(
        event=came, trigger=make_trigger(), replay_id=UUID(NIL), outcome=Decision.Outcome.ERROR, reason=f"no key {MARK}"
    )
    gated = make_trigger("gated")
    Gate.objects.create(trigger=gated, agent="greeter", last_answer="quiet", last_reason=f"seen {MARK}", last_at=Now())
    Decision.objects.create(event=came, trigger=gated, replay_id=UUID(NIL), outcome="quiet", reason=f"seen {MARK}")
    make_item("mails", run, last_text=f"{MARK} waits for a reply")
    Run.objects.update(finished_at=ago(days=days))
    OutboxMessage.objects.all().delete()  # delivered
    return came


def test_an_erasure_leaves_nothing_in_any_column() -> None:
    a_story(days=1, subject=MARK, key=MARK)
    planted = places_of(MARK)

    erasure = erase(Selection(subject=MARK), by="cli:bob")

    assert len(planted) > 20
    assert (places_of(MARK), erasure.left) == (set(), [])


def test_the_erasure_of_one_event_leaves_nothing_of_it() -> None:
    came = a_story(days=1, key=MARK)

    erase_event(came, by="cli:bob")

    assert places_of(MARK) == set()


def test_erasure_reaches_the_audit_entries_of_earlier_versions() -> None:
    came = a_story(days=1)
    run = Run.objects.exclude(trigger="").earliest("id")
    old: dict[str, Any] = {"by": "admin:ada", "kind": "run", "object_id": str(run.pk)}
    AuditEntry.objects.create(action="fork", detail={"step": f"mail:{MARK}", "fork": "1"}, **old)
    AuditEntry.objects.create(action="signal", detail={"name": MARK, "event": "2"}, **old)

    erase_event(came, by="cli:bob")

    assert places_of(MARK) == set()
    assert {"fork": "1"} in AuditEntry.objects.filter(**old).values_list("detail", flat=True)


def test_an_event_erased_by_an_earlier_version_loses_the_reason_why_it_was_not_json() -> None:
    came = old_event(1, data_error=f"the name {MARK!r} stands twice")
    Event.objects.filter(pk=came.pk).update(data=None, body=None, headers=None, payload_removed_at=Now())

    assert erase_event(came, by="cli:bob").events == 1
    assert places_of(MARK) == set()


def test_retention_of_payloads_leaves_nothing_of_them(settings: Any) -> None:
    a_story(days=40, is_signalled=False)
    settings.WAKEFUL_KEEP_PAYLOADS = timedelta(days=30)

    prune()

    assert places_of(MARK) == set()


def test_the_reason_why_a_body_is_not_json_changes_only_with_the_loss_of_the_payload() -> None:
    came = old_event(1, data_error="kept raw: not JSON")

    for word in ("something else", "(erased)", ""):
        with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
            Event.objects.filter(pk=came.pk).update(data_error=word)
