"""Recipients that cannot be reached, deliveries of unknown outcome and unknown names are problems, and alarms that do not loop."""

import pytest
from django.contrib.auth import get_user_model

from config.health.alarms import update_alarms
from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.sql import database_now
from runs.models import Alarm, Delivery, Notification, Recipient
from runs.notifications.signs.unknown_recipients import UNKNOWN_RECIPIENTS
from runs.sign import Problem
from tests.config.health.test_metrics import scrape
from tests.support.notifying import delivered, make_recipient, notify
from tests.support.post_office import taking_hooks

pytestmark = pytest.mark.django_db


def found(name: str) -> Problem | None:
    return next((problem for problem in problems(read_situation()) if problem.name == name), None)


def test_a_recipient_that_cannot_be_reached_is_one_alarm_until_something_arrives() -> None:
    with taking_hooks() as server:
        server.manner = "refuse"
        make_recipient("ops", server.url)
        notify("a")
        delivered()

        for _ in range(3):
            update_alarms()
            delivered()
        alarm = Alarm.objects.get(name="unreachable:ops")
        assert alarm.severity == "bad" and "it answered 410" in alarm.text
        # Its own notification is not sent where nothing arrives, and its failure is no second alarm.
        assert len(server.posted) == 1
        delivery = Delivery.objects.get(notification__topic__startswith="alarm:unreachable:ops")
        assert delivery.reason == "it reports that this recipient cannot be reached"

        server.manner = "take"
        notify("b")
        delivered()
        update_alarms()
    assert Alarm.objects.get(name="unreachable:ops").ended_at is not None


def test_a_recipient_that_cannot_be_reached_is_not_shown_to_lose_what_others_get() -> None:
    make_recipient("gone", failing_since=database_now(), gets_all=False)
    alone = found("unreachable:gone")

    make_recipient("ops")
    with_others = found("unreachable:gone")

    assert alone and "so they reach no one" in alone.text
    assert with_others and "what reached no one else goes to those who get all" in with_others.text


def test_an_unreachable_recipient_with_a_second_route_is_a_warning() -> None:
    with taking_hooks() as server:
        server.manner = "refuse"
        make_recipient("ops", server.url, second=make_recipient("night", gets_all=False))
        notify()
        delivered()

    problem = found("unreachable:ops")
    assert problem and problem.severity == "warning" and "night gets them instead" in problem.text


def test_deliveries_of_unknown_outcome_are_a_problem_until_they_are_resolved() -> None:
    make_recipient()
    notify()
    delivered()
    Delivery.objects.update(status="unknown")
    problem = found("unknown-deliveries")
    assert problem and problem.text.startswith("1 delivery is of unknown outcome")

    Delivery.objects.update(status="sent")
    assert found("unknown-deliveries") is None


def test_a_name_that_does_not_exist_is_a_problem_until_it_does() -> None:
    notify(to=["opps"])
    delivered()
    assert found("unknown-recipient:opps")

    Recipient.objects.create(name="opps", address="inbox:x", channel="inbox")
    assert found("unknown-recipient:opps") is None


def test_a_further_name_that_does_not_exist_ends_no_alarm_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UNKNOWN_RECIPIENTS, "limit", 1)
    notify(to=["n"])
    delivered()
    update_alarms()
    notify(to=["a", "b"])
    delivered()
    update_alarms()

    raised = Alarm.objects.filter(name__startswith="unknown-recipient:")
    assert [(one.name, one.ended_at) for one in raised] == [("unknown-recipient:n", None)]


def test_metrics_count_deliveries_by_status() -> None:
    make_recipient()
    make_recipient("high", least_urgency="high")
    notify("a")
    delivered()
    notify("b")

    metrics = scrape()

    assert metrics["wakeful_notification_deliveries", "sent"] == 1
    assert metrics["wakeful_notification_deliveries", "suppressed"] == 1
    assert metrics["wakeful_notifications_unplanned",] == 1
    assert Notification.objects.count() == 2


def test_an_inbox_that_no_user_can_read_is_a_problem() -> None:
    ada = get_user_model().objects.create_user("ada", is_staff=True)
    make_recipient("ada", "inbox:ada")
    assert found("unread-inbox:ada") is None

    ada.is_active = False
    ada.save()
    assert found("unread-inbox:ada")
    ada.delete()
    assert found("unread-inbox:ada")
