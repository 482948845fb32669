"""A trigger whose filter fails is shown wherever an operator looks, until its events are dispatched again."""

from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from config.health.alarms import update_alarms
from config.health.situation import read_situation
from runs.db.sql import fetch
from runs.models import NIL, Alarm, AuditEntry, Run
from tests.config.console.test_actions import press
from tests.support.console import list_of, page_of
from tests.support.triggers import hold, make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import offer_errors
from triggers.dispatch.rules import Rules
from triggers.dispatch.signs.erring import ERRING, Erring
from triggers.models import Decision, Event, Offer, Trigger

pytestmark = pytest.mark.django_db
FAILS = "event.data.revenue > 100"


def make_erring(slug: str = "greeter", events: int = 2) -> Trigger:
    trigger = make_trigger(slug, filter=FAILS)
    for _ in range(events):
        make_event(data={"amount": 1})
    dispatch(Rules())
    return trigger


def erring() -> list[Erring]:
    return read_situation()[ERRING]


def dispatch_all() -> None:
    rules = Rules()
    for _ in range(20):
        dispatch(rules)
        if not Offer.objects.exists() and not Event.objects.filter(dispatched_at=None).exists():
            break


def settled(trigger: Trigger, filter: str) -> None:
    Trigger.objects.filter(pk=trigger.pk).update(filter=filter)
    offer_errors(trigger=trigger, by="test")
    for _ in range(3):
        dispatch_all()


def test_a_filter_that_fails_is_a_problem_and_an_alarm_until_its_events_are_dispatched_again() -> None:
    trigger = make_erring()

    [one] = erring()
    assert (one.slug, one.count) == ("greeter", 2)
    assert "revenue" in one.reason
    update_alarms()
    assert "2 events ended in an error" in Alarm.objects.get(name="trigger-errors:greeter").text

    settled(trigger, "event.data.amount == 1")

    assert Run.objects.count() == 2
    assert erring() == []
    update_alarms()
    assert Alarm.objects.get(name="trigger-errors:greeter").ended_at


def test_events_that_the_corrected_filter_does_not_want_are_no_errors_any_more() -> None:
    settled(make_erring(), "event.data.amount == 2")

    assert erring() == []
    assert not Run.objects.exists()


def test_errors_of_long_ago_and_of_disabled_triggers_are_no_problem() -> None:
    old, off = make_erring("old"), make_trigger("off", filter=FAILS)
    dispatch_all()
    Decision.objects.filter(trigger=old).update(created_at=timezone.now() - timedelta(days=2))
    Decision.objects.create(event=make_event(), trigger=off, outcome="error", replay_id=NIL)
    Trigger.objects.filter(pk=off.pk).update(enabled=False)

    assert erring() == []


def test_an_event_that_was_held_for_days_and_then_fails_is_an_error_of_today() -> None:
    trigger, event = make_trigger(filter=FAILS), make_event(data={"amount": 1})
    pause(trigger, reason="moving house", by="test")
    hold(event, trigger)
    Decision.objects.update(created_at=timezone.now() - timedelta(days=3))
    Event.objects.update(dispatched_at=timezone.now())

    resume(trigger, by="test")
    dispatch_all()
    dispatch_all()

    assert [one.count for one in erring()] == [1]


def test_health_reads_the_errors_of_the_last_day_by_their_index() -> None:
    trigger = make_erring()
    event = Event.objects.first()
    assert event
    Decision.objects.bulk_create(
        Decision(
            event=event,
            trigger=trigger,
            replay_id=f"{number:032}",
            outcome="error",
            created_at=timezone.now() - timedelta(days=2),
        )
        for number in range(1, 5_000)
    )
    plan = "\n".join(line for (line,) in fetch(f"EXPLAIN {ERRING.sql}", ERRING.parameters()))

    assert "decision_errors" in plan
    assert "Seq Scan on triggers_decision" not in plan


def test_overview_list_and_page_show_the_errors_of_a_trigger(admin: Client) -> None:
    trigger, _ = make_erring(), make_trigger("well", types=["other.*"])

    overview = admin.get("/admin/")
    listed = admin.get(list_of("triggers_trigger") + "?q=greeter").context["cl"].result_list
    page = admin.get(page_of("triggers_trigger", trigger)).content.decode()

    assert [one.slug for one in listed] == ["greeter"]
    assert list_of("triggers_trigger") + "?q=greeter" in overview.content.decode()
    assert "2 events ended in an error at trigger greeter" in overview.content.decode()
    assert "Active, but 2 events ended in an error in the last day and started no run." in page
    assert "matched and started no run" not in page
    assert "/redispatch" in page
    assert (
        "/redispatch" not in admin.get(page_of("triggers_trigger", Trigger.objects.get(slug="well"))).content.decode()
    )


def test_dispatch_again_counts_the_events_and_is_audited(admin: Client) -> None:
    trigger = make_erring()
    Decision.objects.filter(pk=Decision.objects.order_by("id").values("pk")[:1]).update(
        created_at=timezone.now() - timedelta(days=2)
    )

    dialog = admin.get(page_of("triggers_trigger", trigger).replace("change", "redispatch")).content.decode()
    assert "Of the last day (1)" in dialog
    assert "All (2)" in dialog
    assert not Offer.objects.exists()

    answer = press(admin, "triggers_trigger", trigger, "redispatch", errors="lately")
    assert "1 event will be dispatched again" in answer.content.decode()
    entry = AuditEntry.objects.get(action="redispatch_errors")
    assert (entry.by, entry.detail["events"]) == ("admin:ada", 1)
