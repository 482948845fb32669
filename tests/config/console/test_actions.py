"""What an operator's buttons do: the service's work, in his name, for those who may."""

from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from runs.models import NIL, AuditEntry, ProcessedEvent, Run
from runs.states import RunStatus
from runs.transitions.stop import stop
from tests.config.console.conftest import LogIn
from tests.support.console import list_of, make_failed_run, page_of
from tests.support.old_rows import old_event, old_run
from tests.support.runs import make_run
from tests.support.triggers import hold, make_event, make_paused_trigger, make_trigger
from triggers.dispatch.offers import move
from triggers.models import Decision, Event, Redispatch, Trigger

VIEWER = ("runs.view_run", "triggers.view_trigger", "triggers.view_event", "triggers.view_schedule")


def press(client: Client, noun: str, row: Any, button: str, **fields: Any) -> Any:
    """Submit the dialog of a button of the detail page."""
    path = page_of(noun, row).replace("change", button)
    return client.post(path, {"_form_submitted": "True", **fields}, follow=True)


def choose(client: Client, noun: str, action: str, *rows: Any) -> list[str]:
    """Carry out a list's action on rows; the messages for the operator."""
    form = {"action": action, "_selected_action": [str(row.pk) for row in rows]}
    answer = client.post(list_of(noun), form, follow=True)
    return [str(message) for message in answer.context["messages"]]


def audited(action: str) -> AuditEntry:
    return AuditEntry.objects.get(action=action)


def test_bulk_requeue_shows_how_many_were_refused_and_why(admin: Client) -> None:
    trigger = make_trigger()
    failed, done = make_failed_run(trigger), make_run(status=RunStatus.SUCCEEDED)
    processed = make_failed_run(trigger)
    ProcessedEvent.objects.create(
        event_id=processed.event_ids[0], consumer=trigger.slug, replay_id=UUID(NIL), run_id=processed.pk
    )

    messages = choose(admin, "runs_run", "requeue_chosen", failed, done, processed)

    assert messages[0] == "1 requeued."
    assert "1 refused: only failed and cancelled runs can be requeued" in messages
    assert len(messages) == 3
    assert Run.objects.get(pk=processed.pk).status == RunStatus.FAILED


def test_opening_a_dialog_changes_nothing(admin: Client) -> None:
    run = make_failed_run(make_trigger())

    answer = admin.get(page_of("runs_run", run).replace("change", "requeue_run"))

    assert answer.status_code == 200
    assert Run.objects.get(pk=run.pk).status == RunStatus.FAILED


def test_each_permission_opens_its_own_button_only(log_in: LogIn) -> None:
    trigger = make_trigger()
    client = log_in(*VIEWER, "triggers.fire_trigger")

    assert press(client, "triggers_trigger", trigger, "fire", data="{}").status_code == 200
    assert press(client, "triggers_trigger", trigger, "pause", reason="x").status_code == 403


def test_fire_hands_the_data_over(admin: Client) -> None:
    trigger = make_trigger()

    press(admin, "triggers_trigger", trigger, "fire", data='{"n": 1}')

    event = Event.objects.get(type="manual.fired")
    assert (event.target_id, event.data, event.ce_source) == (trigger.pk, {"n": 1}, "admin:ada")


def test_pause_requires_a_reason(admin: Client) -> None:
    trigger = make_trigger()

    press(admin, "triggers_trigger", trigger, "pause")
    assert not Trigger.objects.get(pk=trigger.pk).is_paused

    press(admin, "triggers_trigger", trigger, "pause", reason="maintenance")
    assert Trigger.objects.get(pk=trigger.pk).paused_reason == "maintenance"


@pytest.mark.parametrize(("held", "offered", "outcome"), [("run", 1, "held"), ("drop", 0, "dropped")])
def test_resume_runs_or_drops_what_was_held(admin: Client, held: str, offered: int, outcome: str) -> None:
    trigger = make_paused_trigger()
    hold(make_event(), trigger)

    dialog = admin.get(page_of("triggers_trigger", trigger).replace("change", "resume")).content.decode()
    press(admin, "triggers_trigger", trigger, "resume", held=held)
    move()

    assert "Drop them (1)" in dialog
    assert not Trigger.objects.get(pk=trigger.pk).is_paused
    assert Redispatch.objects.count() == offered
    assert Decision.objects.get().outcome == outcome


def test_bulk_pause_and_resume_count_those_that_are_so_already(admin: Client) -> None:
    active, paused = make_trigger("active"), make_paused_trigger("paused")

    assert choose(admin, "triggers_trigger", "pause_chosen", active, paused) == [
        "1 paused; their events are held.",
        "1 refused: already paused",
    ]
    assert choose(admin, "triggers_trigger", "resume_and_run", active, paused) == ["2 resumed."]


def test_replay_goes_to_all_or_to_those_that_are_chosen(admin: Client) -> None:
    event, first, second = make_event(), make_trigger("first"), make_trigger("second")

    press(admin, "triggers_event", event, "replay_event")
    press(admin, "triggers_event", event, "replay_event", triggers=[str(first.pk), str(second.pk)])
    choose(admin, "triggers_event", "replay_chosen", event)

    assert [one.trigger for one in Redispatch.objects.order_by("pk")] == [None, first, second, None]


@pytest.mark.parametrize("button", ["replay_event", "erase_event"])
def test_a_button_of_an_event_that_is_deleted_meanwhile_is_no_server_error(admin: Client, button: str) -> None:
    event = make_event()
    Event.objects.filter(pk=event.pk).delete()

    assert press(admin, "triggers_event", event, button, what="event").status_code == 404


def test_erase_removes_the_payload_of_one_event_and_audits_the_operator(admin: Client) -> None:
    event, other = (old_event(1, subject="ada@example.com") for _ in range(2))
    run = old_run(event, status=RunStatus.FAILED)

    answer = press(admin, "triggers_event", event, "erase_event", what="event")

    page = answer.content.decode()
    assert "Removed by retention or erasure." in page
    assert "ada@example.com" not in page
    assert "replay_event" not in page
    assert "Payload removed" in admin.get(page_of("runs_run", run)).content.decode()
    assert Event.objects.get(pk=other.pk).data == {"name": "Ada"}
    assert audited("erase").by == "admin:ada"


def test_erase_of_a_subject_shows_what_is_still_needed(admin: Client) -> None:
    event, other = (old_event(1, subject="ada@example.com") for _ in range(2))
    old_run(other)

    answer = press(admin, "triggers_event", event, "erase_event", what="subject")

    assert [str(message) for message in answer.context["messages"]] == ["Erased: 2 events and 1 run."]
    left = old_event(1, subject="bob@example.com", dispatched_at=None)
    answer = press(admin, "triggers_event", left, "erase_event", what="subject")
    assert f"Not erased, because still in use: {left.pk} (1 in total). Try again later." in map(
        str, answer.context["messages"]
    )


def take_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a run is cancelled, the gates of all others are quiet."""

    def stopped(run: Run, by: str) -> bool:
        Run.objects.exclude(pk=run.pk).filter(status=RunStatus.QUEUED).delete()
        return stop(run, by)

    monkeypatch.setattr("runs.actions.cancel.stop", stopped)


def test_runs_that_vanish_during_a_bulk_cancel_are_refused_and_the_others_cancelled(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_the_others(monkeypatch)
    runs = [make_run() for _ in range(3)]

    messages = choose(admin, "runs_run", "cancel_chosen", *runs)

    assert messages == ["1 cancelled; those that are running stop within seconds.", "2 refused: it is gone"]


def test_a_run_that_is_gone_by_then_is_reported(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    run = make_run()
    monkeypatch.setattr("runs.actions.cancel.stop", lambda run, by: not Run.objects.filter(pk=run.pk).delete())

    answer = press(admin, "runs_run", run, "cancel_run")

    assert "It is gone." in [str(message) for message in answer.context["messages"]]
