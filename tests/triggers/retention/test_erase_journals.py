"""Erasure reaches what durable runs took, passed on and were given."""

from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection

from runs.models import OutboxMessage, Run, Step
from runs.states import RunStatus
from tests.support.journals import make_approval, make_child, make_fork, make_step, make_wait
from tests.support.old_rows import old_event, old_run
from triggers.models import Event
from triggers.retention.erasure import Erasure, Selection, erase

pytestmark = pytest.mark.django_db

ADA = "ada@example.com"
JOURNAL = ("runs_step", "runs_wait", "runs_approval")


def erase_ada() -> Erasure:
    return erase(Selection(subject=ADA), by="cli:bob")


def stored(*tables: str) -> str:
    with connection.cursor() as cursor:
        texts = []
        for table in tables:
            cursor.execute(f"SELECT coalesce(string_agg(row::text, ' '), '') FROM {table} row")  # noqa: S608
            texts.append(cursor.fetchone()[0])
    return " ".join(texts)


def run_that_took_it(status: str = RunStatus.SUCCEEDED, **fields: Any) -> Run:
    """A run of an event about another person, whose wait took one about Ada."""
    event = old_event(1, subject=ADA, data={"email": ADA})
    run = old_run(old_event(2), status=status, result={"to": ADA}, **fields)
    make_wait(run, "event", status="done", event_id=event.id, match={"email": ADA}, match_hash="1f")
    return run


def lost_its_payload(run_id: UUID) -> bool:
    return Run.objects.get(pk=run_id).payload_removed_at is not None


def test_the_journal_keeps_nothing_of_the_person() -> None:
    run = old_run(old_event(1, subject=ADA))
    make_step(run, "mail", arguments={"to": ADA}, output=ADA, error=ADA)
    make_wait(run, "event", status="done", match={"email": ADA})
    make_approval(run, question=f"Mail {ADA}?", arguments=ADA, decided_arguments=ADA, reason=ADA, detail=ADA)
    assert ADA in stored(*JOURNAL)

    erase_ada()

    assert ADA not in stored(*JOURNAL)


def test_keys_that_an_agent_gave_go_and_names_stay() -> None:
    run = old_run(old_event(1, subject=ADA))
    for key, is_keyed in {"mail": False, f"mail:{ADA}": True, f"mail:{ADA}:2": True, "emit:mail.sent#1": False}.items():
        make_step(run, key, is_keyed=is_keyed)

    erase_ada()

    mail, first, second, emitted = Step.objects.filter(run=run).order_by("position").values_list("key", flat=True)
    assert (mail, emitted) == ("mail", "emit:mail.sent#1")
    assert first.startswith("mail:(erased)#") and second.startswith("mail:(erased)#") and first != second


def test_a_run_whose_wait_took_the_event_loses_all_it_held() -> None:
    run = run_that_took_it()

    erasure = erase_ada()

    assert (erasure.events, erasure.runs) == (1, 1)
    assert lost_its_payload(run.id)
    assert ADA not in stored(*JOURNAL, "runs_run")


def test_a_live_run_whose_wait_took_the_event_keeps_it() -> None:
    run = run_that_took_it(RunStatus.QUEUED)

    erasure = erase_ada()

    assert [one.runs for one in erasure.left] == [[run.id]]
    assert Event.objects.get(subject=ADA).data == {"email": ADA}


def test_children_and_forks_lose_their_inputs() -> None:
    run = old_run(old_event(1, subject=ADA), status=RunStatus.FAILED)
    child = make_child(run, input={"email": ADA})
    heirs = [child, make_fork(run, input=ADA), make_child(child, result=ADA), make_fork(child, input=ADA)]

    erasure = erase_ada()

    assert erasure.runs == 5
    assert all(lost_its_payload(one.id) for one in heirs)
    assert ADA not in stored("runs_run")


def test_events_that_a_child_emitted_are_erased_too() -> None:
    child = make_child(old_run(old_event(1, subject=ADA)), result=ADA)
    emitted = old_event(0, data={"greeted": ADA}, cause_run_id=child.id)

    assert erase_ada().events == 2
    assert Event.objects.get(pk=emitted.pk).data is None


def test_a_live_child_keeps_the_whole_story() -> None:
    run = old_run(old_event(1, subject=ADA))
    child = make_child(run, status=RunStatus.QUEUED, input={"email": ADA})

    erasure = erase_ada()

    assert [one.runs for one in erasure.left] == [[child.id]]
    assert not lost_its_payload(run.id)


def test_a_parent_that_was_given_the_result_loses_it_and_its_other_children_lose_nothing() -> None:
    parent = old_run(old_event(2), result={"all": [ADA, "bob"]})
    make_step(parent, "gather", output=[ADA])
    mine, other = make_child(parent, result=ADA), make_child(parent, result="bob")
    make_wait(mine, "event", status="done", event_id=old_event(1, subject=ADA).id)

    erase_ada()

    assert ADA not in stored("runs_run", "runs_step")
    assert Run.objects.get(pk=other.pk).result == "bob"


def test_a_finished_child_stays_whole_while_its_parent_lives() -> None:
    parent = old_run(old_event(2), status=RunStatus.QUEUED)
    child = make_child(parent, result=ADA)
    make_wait(child, "event", status="done", event_id=old_event(1, subject=ADA).id)

    erasure = erase_ada()

    assert [one.runs for one in erasure.left] == [[parent.id]]
    assert Run.objects.get(pk=child.pk).result == ADA


def test_erasure_waits_for_a_run_with_an_undelivered_wake() -> None:
    came = old_event(1, subject=ADA)
    run = old_run(came)
    OutboxMessage.objects.create(topic="wakeup", key=str(uuid4()), payload={"run": str(run.id), "data": ADA})

    assert [one.event_id for one in erase_ada().left] == [came.id]
