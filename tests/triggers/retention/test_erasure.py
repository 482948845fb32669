"""Erasure of what events contain about a person, and of what came of it; whatever keeps things from being done twice stays."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone

from runs.actions.requeue import requeue
from runs.exceptions import IllegalState
from runs.models import AuditEntry, Delivery, Notification, OutboxMessage, ProcessedEvent, Run
from runs.states import RunStatus
from tests.runs.test_commands import run_command
from tests.support.api import Api
from tests.support.notifying import make_recipient
from tests.support.old_rows import old_event, old_run
from tests.support.triggers import hold, make_paused_trigger, make_trigger
from triggers.accept import Incoming, accept
from triggers.exceptions import PayloadRemoved
from triggers.models import Decision, Event
from triggers.replays.replay import replay
from triggers.retention.erasure import Erasure, Selection, erase, erase_event, mark_of

pytestmark = pytest.mark.django_db

ADA = "ada@example.com"


def erase_ada(**more: Any) -> Erasure:
    return erase(Selection(subject=ADA, **more), by="cli:bob")


def everything_stored() -> str:
    """All that the tables of events and runs hold, as text."""
    with connection.cursor() as cursor:
        texts = []
        for table in (
            "triggers_event",
            "runs_run",
            "runs_attemptrow",
            "runs_notification",
            "runs_delivery",
            "triggers_decision",
            "runs_auditentry",
        ):
            cursor.execute(f"SELECT coalesce(string_agg(row::text, ' '), '') FROM {table} row")  # noqa: S608
            texts.append(cursor.fetchone()[0])
    return " ".join(texts)


def a_story() -> tuple[Event, Run, Event, Run]:
    """Ada came, which woke a run, which emitted an event, which woke another."""
    came = old_event(2, subject=ADA, data={"email": ADA}, body=ADA.encode(), headers={"From": ADA})
    first = old_run(came, input={"email": ADA}, result={"to": ADA}, error=f"no mail to {ADA}", key=f"{uuid4()}:{ADA}")
    greeted = old_event(
        1, subject=ADA, data={"greeted": ADA}, source_id=came.source_id, root_id=came.id, cause_event_id=came.id,
        cause_run_id=first.id, depth=1,
    )  # fmt: skip
    second = old_run(greeted, result={"to": ADA}, status=RunStatus.FAILED)
    notification = Notification.objects.create(
        sender="greeter", run_id=second.id, text=f"{ADA} was here", topic=ADA, link=f"https://example.com/{ADA}"
    )
    states: list[dict[str, Any]] = [
        {"status": "pending", "due_at": timezone.now()},
        {"status": "failed", "error": ADA},
    ]
    for number, fields in enumerate(states):
        recipient = make_recipient(str(number))
        Delivery.objects.create(notification=notification, recipient=recipient, name=recipient.name, **fields)
    return came, first, greeted, second


def test_ids_types_times_and_the_ledger_stay() -> None:
    came, first, greeted, second = a_story()

    erase_ada()

    for event in (came, greeted):
        row = Event.objects.get(pk=event.pk)
        assert (row.type, row.ce_id, row.received_at) == (event.type, event.ce_id, event.received_at)
        assert row.subject == mark_of(ADA)
    assert Run.objects.get(pk=first.pk).status == "succeeded"
    assert Run.objects.get(pk=second.pk).finished_at == second.finished_at
    assert ProcessedEvent.objects.get().event_id == came.id


def test_a_redelivery_of_an_erased_event_does_nothing() -> None:
    came, *_ = a_story()
    erase_ada()

    [accepted] = accept(
        [Incoming(source_id=came.source_id, ce_source=came.ce_source, ce_id=came.ce_id, type=came.type, body=b"again")]
    )

    assert (accepted.event_id, accepted.duplicate) == (came.id, True)
    assert Event.objects.get(pk=came.pk).body is None


def test_an_erased_event_is_neither_replayed_nor_requeued() -> None:
    came, _, _, second = a_story()
    erase_ada()

    with pytest.raises(PayloadRemoved):
        replay(Event.objects.get(pk=came.pk), by="test")
    with pytest.raises(IllegalState, match="payload"):
        requeue(second.id, by="test")


def test_events_of_other_subjects_keep_their_payloads() -> None:
    other = old_event(1, subject="bob@example.com")
    same_name_elsewhere = old_event(1, data={"email": ADA})
    a_story()

    erase_ada()

    assert Event.objects.get(pk=other.pk).subject == "bob@example.com"
    assert Event.objects.get(pk=same_name_elsewhere.pk).data == {"email": ADA}


def test_an_expression_finds_events_without_subject() -> None:
    meant = old_event(1, data={"user": {"email": ADA}})
    other = old_event(1, data={"user": {"email": "bob@example.com"}})
    without = old_event(1, data=[1, 2])

    erasure = erase(Selection(where=f'event.data.user.email == "{ADA}"'), by="cli:bob")

    assert erasure.events == 1
    assert Event.objects.get(pk=meant.pk).data is None
    assert {other.pk, without.pk} == set(Event.objects.exclude(data=None).values_list("pk", flat=True))
    assert ADA not in json.dumps(AuditEntry.objects.get().detail)


def test_events_that_an_expression_cannot_check_are_counted_and_named() -> None:
    raw = old_event(1, data=None, body=f'{{"email": "{ADA}"'.encode(), data_error="not JSON")
    old_event(1, data={"user": {"email": ADA}})
    old_event(1, data=None, body=None)

    out, _, well = run_command("erase", "--where", f'event.data.user.email == "{ADA}"', "--yes")

    assert well
    assert out.startswith("1 events and 0 runs erased\n1 events could not be checked: their data did not parse")
    assert f"not checked: event {raw.pk}" in out
    assert Event.objects.get(pk=raw.pk).body
    assert AuditEntry.objects.get().detail["unread"] == 1


def test_erasure_of_one_source_covers_no_event_of_another() -> None:
    came, *_ = a_story()

    assert erase_ada(source="manual").events == 0
    assert erase_ada(source=came.source.slug).events == 2


# What is still needed


def test_a_live_run_is_left_with_all_that_led_to_it_and_goes_the_next_time() -> None:
    came, first, greeted, second = a_story()
    Run.objects.filter(pk=second.pk).update(status="queued", finished_at=None)

    erasure = erase_ada()

    assert (erasure.events, erasure.runs) == (0, 0)
    [left] = erasure.left
    assert (left.event_id, left.runs) == (greeted.id, [second.id])
    assert Event.objects.get(pk=came.pk).data == {"email": ADA}

    Run.objects.filter(pk=second.pk).update(status="cancelled", finished_at=second.finished_at)
    assert erase_ada().events == 2
    assert ADA not in everything_stored()


def test_held_and_undispatched_events_are_not_erased() -> None:
    held, new = old_event(1, subject=ADA), old_event(1, subject=ADA, dispatched_at=None)
    hold(held, make_paused_trigger())

    erasure = erase_ada()

    assert {one.event_id for one in erasure.left} == {held.id, new.id}
    assert Event.objects.filter(payload_removed_at=None).count() == 2


def test_an_emitted_event_that_is_still_on_its_way_is_waited_for() -> None:
    came = old_event(1, subject=ADA)
    run = old_run(came)
    OutboxMessage.objects.create(topic="event", payload={"cause_run_id": str(run.id), "data": ADA})

    erasure = erase_ada()

    assert [one.event_id for one in erasure.left] == [came.id]


def test_a_second_erasure_finds_later_effects() -> None:
    came, first, *_ = a_story()
    erase_ada()
    late = old_event(0, subject=ADA, cause_run_id=first.id, cause_event_id=came.id, root_id=came.id, depth=1)

    assert erase_ada().events == 1
    assert Event.objects.get(pk=late.pk).data is None
    assert erase_ada().events == 0


def test_a_run_of_several_events_loses_its_input_with_one_of_them() -> None:
    other = old_event(2)
    ada = old_event(1, subject=ADA)
    run = old_run(other, event_ids=[other.id, ada.id])
    Decision.objects.create(event=ada, trigger=make_trigger(), replay_id=uuid4(), outcome="joined", run_id=run.id)

    erase_ada()

    run.refresh_from_db()
    assert run.input is None
    assert Event.objects.get(pk=other.pk).data == {"name": "Ada"}


def test_an_event_without_payload_loses_its_subject_too() -> None:
    event = old_event(1, subject=ADA)
    Event.objects.filter(pk=event.pk).update(data=None, body=None, headers=None, payload_removed_at=event.received_at)

    assert erase_ada().events == 1

    row = Event.objects.get(pk=event.pk)
    assert (row.subject, row.payload_removed_at) == (mark_of(ADA), event.received_at)


def test_erasure_of_one_event_covers_no_other_of_its_subject() -> None:
    event, other = old_event(1, subject=ADA), old_event(1, subject=ADA)

    assert erase_event(event, by="admin:bob").events == 1

    assert Event.objects.get(pk=other.pk).subject == ADA
    assert AuditEntry.objects.get().object_id == str(event.pk)


# How it is shown


def test_the_api_shows_when_it_was_erased_and_refuses_to_requeue() -> None:
    came, _, _, second = a_story()
    erase_ada()
    api = Api()

    event, run = api.get(f"events/{came.id}/").body, api.get(f"runs/{second.id}/").body

    assert event["payload_removed_at"] and run["payload_removed_at"]
    assert (event["data"], event["headers"], run["input"], run["result"]) == (None, None, None, None)
    answer = api.post(f"runs/{second.id}/requeue/")
    assert (answer.status, answer.body["status"]) == (409, "failed")
    assert "payload" in answer.body["detail"]


def test_the_audit_entry_shows_who_and_how_much_but_not_whom() -> None:
    a_story()

    erase_ada()

    entry = AuditEntry.objects.get(action="erase")
    assert (entry.by, entry.kind, entry.object_id) == ("cli:bob", "subject", mark_of(ADA))
    assert entry.detail == {"events": 2, "runs": 2, "left": []}


def test_a_dry_run_counts_and_changes_nothing() -> None:
    a_story()

    erasure = erase(Selection(subject=ADA), by="cli:bob", dry_run=True)

    assert (erasure.events, erasure.runs) == (2, 2)
    assert not Event.objects.exclude(payload_removed_at=None).exists()
    assert not AuditEntry.objects.exists()


def test_the_command_does_nothing_without_yes() -> None:
    a_story()

    assert not run_command("erase", "--subject", ADA)[2]
    assert run_command("erase", "--subject", ADA, "--dry-run")[0] == "2 events and 2 runs would be erased\n"
    assert run_command("erase", "--subject", ADA, "--yes")[0] == "2 events and 2 runs erased\n"


def test_the_command_fails_where_something_was_left() -> None:
    event = old_event(1, subject=ADA)
    run = old_run(event, status=RunStatus.WAITING)

    out, _, well = run_command("erase", "--subject", ADA, "--yes", "--json")

    assert json.loads(out)["left"] == [{"event_id": str(event.id), "runs": [str(run.id)]}]
    assert not well


@pytest.mark.parametrize(
    "arguments", [(), ("--source", "cli"), ("--where", "event.data.("), ("--where", "person == 1")]
)
def test_the_command_requires_a_subject_or_an_expression(arguments: tuple[str, ...]) -> None:
    assert not run_command("erase", "--yes", *arguments)[2]


@pytest.mark.parametrize(
    "change",
    [
        {"subject": "bob@example.com"},
        {"subject": "erased:1"},
        {"data": {"name": "Bob"}},
        {"payload_removed_at": None, "ce_id": "another"},
    ],
)
def test_the_database_refuses_other_changes_of_an_event(change: dict[str, Any]) -> None:
    event = old_event(1, subject=ADA)

    with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
        Event.objects.filter(pk=event.pk).update(**change)


def test_the_database_lets_no_payload_come_back() -> None:
    event = old_event(1, subject=ADA)
    erase_ada()

    changes: list[dict[str, Any]] = [{"payload_removed_at": None}, {"data": {}}, {"subject": ADA}]
    for change in changes:
        with pytest.raises(IntegrityError, match="immutable"), transaction.atomic():
            Event.objects.filter(pk=event.pk).update(**change)


def test_a_notification_that_is_erased_is_not_sent() -> None:
    a_story()

    erase_ada()

    assert {(one.status, one.reason) for one in Delivery.objects.filter(name="0")} == {
        ("suppressed", "its notification was erased")
    }


def test_a_report_that_no_run_came_of_an_erased_event_is_erased_as_the_reason_may_quote_it() -> None:
    came = old_event(1, subject=ADA)
    about = Notification.objects.create(sender="greeter", text=f"error: no number: '{ADA}'", link=f"event:{came.id}")
    other = Notification.objects.create(sender="greeter", text="another", link=f"event:{uuid4()}")

    erase_ada()

    about.refresh_from_db()
    other.refresh_from_db()
    assert (about.text, about.link, other.text) == ("(erased)", "", "another")
