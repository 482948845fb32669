"""The morning digest: once a day, for people who get it, if there is something to tell."""

from datetime import UTC, datetime, timedelta
from threading import Barrier, Thread
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.db import connection
from django.test import Client

from config.links import absolute
from runs.models import Delivery, Notification
from tests.support.journals import make_step
from tests.support.notifying import make_recipient
from tests.support.runs import make_run
from tests.triggers.overnight.test_figures import id_at
from triggers.overnight import digest
from triggers.overnight.digest import tell

pytestmark = pytest.mark.django_db
NIGHT = datetime(2026, 11, 23, 2, 10, tzinfo=UTC)  # a Monday
MORNING = datetime(2026, 11, 23, 6, 0, tzinfo=UTC)  # 07:00 in Vienna


@pytest.fixture(autouse=True)
def morning(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.WAKEFUL_ZONE, settings.WAKEFUL_DIGEST_HOUR = ZoneInfo("Europe/Vienna"), 7
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    at(monkeypatch, MORNING)


def at(monkeypatch: pytest.MonkeyPatch, now: datetime) -> None:
    monkeypatch.setattr(digest, "database_now", lambda: now)


def spoken(text: str = "Ticket 8 waits", sender: str = "watch") -> None:
    notification = Notification.objects.create(sender=sender, text=text)
    Notification.objects.filter(pk=notification.pk).update(created_at=NIGHT)


def digests() -> list[str]:
    return list(Notification.objects.filter(topic__startswith="overnight:").values_list("text", flat=True))


def test_the_digest_sums_up_the_night_and_links_its_page(client: Client) -> None:
    make_recipient()
    spoken()
    for status in ("succeeded", "failed"):
        run = make_run(status=status, agent="clerk", started_at=NIGHT, event_id=id_at(NIGHT))
        make_step(run, "model:1", kind="model", usage={"model": "paid", "cost": "0.25"}, ended_at=NIGHT)
    make_run(status="succeeded", agent="sleepy", started_at=NIGHT, event_id=id_at(NIGHT))

    assert tell()

    notice = Notification.objects.get(topic__startswith="overnight:")
    assert notice.text.splitlines() == [
        "From Sunday 18:00 to Monday 07:00 (Europe/Vienna): 3 wakes, 1 failed, 1 notification, 2 model requests for $0.50.",
        "clerk: 2 wakes, 1 failed, 2 model requests for $0.50",
        "watch: 1 notification",
    ]
    assert (notice.sender, notice.urgency) == ("wakeful", "low")
    link = absolute(notice.link)
    assert link == "https://wakeful.example.com/admin/overnight/?to=2026-11-23T06%3A00%3A00%2B00%3A00"


def test_the_digest_comes_once_and_late_only_for_some_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    make_recipient()
    spoken()

    at(monkeypatch, MORNING.replace(hour=12, minute=1))
    assert not tell()
    at(monkeypatch, MORNING.replace(hour=11))
    assert [tell(), tell()] == [True, False]
    assert len(digests()) == 1


def test_no_digest_is_written_where_agents_only_succeeded_or_were_quiet() -> None:
    make_recipient()
    make_run(status="succeeded", agent="sleepy", started_at=NIGHT, event_id=id_at(NIGHT))

    assert not tell()
    assert not digests()


def test_no_digest_is_written_without_a_recipient_or_without_an_hour(settings: Any) -> None:
    spoken()
    make_recipient(gets_all=False)
    assert not tell()

    settings.WAKEFUL_NOTIFY_TO = "inbox:admin"
    settings.WAKEFUL_DIGEST_HOUR = None
    assert not tell()

    settings.WAKEFUL_DIGEST_HOUR = 7
    assert tell()


def test_the_digest_counts_suppressed_notifications() -> None:
    ops = make_recipient()
    spoken()
    notice = Notification.objects.get()
    Delivery.objects.create(
        id=id_at(NIGHT), notification=notice, recipient=ops, name="ops", status="suppressed", reason="silenced"
    )

    tell()

    assert digests()[0].endswith("watch: 1 notification (1 suppressed)")


@pytest.mark.django_db(transaction=True)
def test_two_workers_write_it_once() -> None:
    make_recipient()
    spoken()
    together = Barrier(2)

    def work() -> None:
        together.wait()
        try:
            tell()
        finally:
            connection.close()

    workers = [Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    assert len(digests()) == 1


def test_a_digest_of_the_evening_is_no_news_for_the_next(monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    settings.WAKEFUL_DIGEST_HOUR = 20
    evening = MORNING.replace(hour=19)  # 20:00 in Vienna
    make_recipient()
    spoken()
    at(monkeypatch, evening)
    assert tell()
    Notification.objects.filter(topic__startswith="overnight:").update(created_at=evening)

    at(monkeypatch, evening + timedelta(days=1))
    assert not tell()
