"""A subscription that ends without a renewal is a problem before it does."""

from datetime import timedelta
from email.utils import format_datetime

import pytest
from django.utils import timezone

from config.health.problems import problems
from config.health.situation import read_situation
from runs.models import Alarm
from runs.sign import Problem
from tests.support.deliveries import delivery, secrets
from tests.support.hooks import make_source
from triggers.accept import accept
from triggers.models import Event, Source
from triggers.sources.webhooks.receive import Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import Delivery

pytestmark = pytest.mark.django_db

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def notified(source: Source, ends_in: timedelta, number: int = 1, resource: str = "team", channel: str = "a") -> None:
    headers = {
        "X-Goog-Channel-ID": channel,
        "X-Goog-Channel-Token": "token",
        "X-Goog-Channel-Expiration": format_datetime(timezone.now() + ends_in, usegmt=False),
        "X-Goog-Resource-ID": resource,
        "X-Goog-Resource-URI": f"https://www.googleapis.com/calendar/v3/calendars/{resource}%40example.com/events",
        "X-Goog-Resource-State": "sync" if number == 1 else "exists",
        "X-Goog-Message-Number": str(number),
    }
    given = delivery(b"", headers)
    sent = Delivery(
        source_id=source.id, endpoint="/hooks/calendar/", headers=given.headers, body=b"", received_at=timezone.now()
    )
    receipt = receive(*cleaned("google_calendar", {}), secrets("token"), sent)
    assert isinstance(receipt, Receipt)
    accept([receipt.event])
    Event.objects.update(dispatched_at=timezone.now())


def found() -> Problem | None:
    return {problem.name: problem for problem in problems(read_situation())}.get("ending:calendar")


def test_a_channel_that_ends_within_a_day_is_a_problem_until_another_is_there() -> None:
    source = make_source("calendar", "google_calendar")
    notified(source, 3 * DAY)
    assert found() is None

    notified(source, 5 * HOUR, resource="sales", channel="b")
    ending = found()
    assert ending and ending.severity == Alarm.Severity.WARNING
    assert "to sales@example.com ends in 5 h" in ending.text or "ends in 4 h 59 min" in ending.text

    notified(source, 7 * DAY, resource="sales", channel="c")
    notified(source, 5 * HOUR, number=12, resource="sales", channel="b")
    assert found() is None


def test_a_channel_that_has_ended_is_a_problem_for_a_week() -> None:
    source = make_source("calendar", "google_calendar")
    notified(source, -2 * DAY)
    ended = found()
    assert ended and ended.severity == Alarm.Severity.BAD and "ended 2 d" in ended.text

    Source.objects.update(enabled=False)
    assert found() is None


def test_a_channel_that_ended_long_ago_or_names_no_end_is_no_problem() -> None:
    source = make_source("calendar", "google_calendar")
    notified(source, -8 * DAY)

    assert found() is None
