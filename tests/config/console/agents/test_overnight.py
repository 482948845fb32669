"""The page “What ran overnight”."""

from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from django.utils import timezone

from config.console.agents import overnight
from runs.models import Delivery, Notification
from runs.notifications.plan import plan
from tests.config.console.conftest import LogIn
from tests.config.console.test_pages import queries_of
from tests.support.notifying import make_recipient, notify
from tests.support.runs import make_run

PATH = "/admin/overnight/"
KATHMANDU = ZoneInfo("Asia/Kathmandu")
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def far_away(settings: Any, admin: Client) -> None:
    """The site; the console shows times as this reader's clock does."""
    settings.WAKEFUL_ZONE = KATHMANDU
    admin.cookies["zone"] = KATHMANDU.key


def context_of(client: Client, **query: str) -> Any:
    answer = client.get(PATH, query)
    assert answer.status_code == 200
    return answer.context


def around_now() -> dict[str, str]:
    """In the form of the page, by the clock that it shows."""
    now = datetime.now(KATHMANDU)
    return {"from": f"{now - DAY / 2:%Y-%m-%dT%H:%M}", "to": f"{now + DAY / 2:%Y-%m-%dT%H:%M}"}


def test_the_time_span_begins_yesterday_evening_by_the_clock_of_the_site(admin: Client) -> None:
    yesterday = datetime.now(KATHMANDU) - DAY

    assert context_of(admin)["start"] == f"{yesterday:%Y-%m-%d}T18:00"


def test_the_page_has_the_zone_that_the_header_names(admin: Client) -> None:
    admin.cookies["zone"] = "Asia/Tokyo"  # 3 h 15 min ahead of Kathmandu

    context = context_of(admin)

    assert (context["zone"], context["start"][-6:]) == ("Asia/Tokyo", "T21:15")
    asked = context_of(admin, **{"from": "2026-11-22T18:00", "to": "2026-11-23T06:00"})
    assert (asked["start"], asked["hours"][0][1]) == ("2026-11-22T18:00", "18:00")


def test_the_timeline_shows_the_most_important_of_each_slot(admin: Client) -> None:
    make_run(status="failed", agent="<clerk>", started_at=timezone.now())
    Notification.objects.create(sender="<clerk>", text="Hello")

    context = context_of(admin, **around_now())

    [lane] = context["lanes"]
    [mark] = lane.marks
    assert (mark.kind, 45 < mark.left < 55) == ("failed", True)
    assert mark.title.endswith(": 1 failed, 1 spoke, 1 runs")
    assert [words[2:] for _, words in context["hours"]] == [":45"] * 12
    assert "&lt;clerk&gt;" in admin.get(PATH, around_now()).content.decode()


def test_midnight_is_named_after_its_day(admin: Client) -> None:
    admin.cookies["zone"] = "Europe/Vienna"

    hours = context_of(admin, **{"from": "2026-11-22T18:00", "to": "2026-11-23T06:00"})["hours"]

    assert [words for _, words in hours][5:8] == ["23:00", "Mon 23", "01:00"]
    week = context_of(admin, **{"from": "2026-11-16T00:00", "to": "2026-11-23T00:00"})["hours"]
    assert [words for _, words in week][:2] == ["Mon 16", "Tue 17"]


def test_figures_are_in_the_table_and_summed_above_it(admin: Client) -> None:
    for agent in ("clerk", "clerk", "watch"):
        make_run(status="succeeded", agent=agent, started_at=timezone.now())

    context = context_of(admin, **around_now())

    assert [row[1] for row in context["table"].rows] == ["2", "1"]
    assert {gauge.label: gauge.value for gauge in context["gauges"]}["Woken"] == "3"


def test_held_merged_and_unsent_deliveries_are_not_counted_as_suppressed(admin: Client) -> None:
    make_recipient(spacing=timedelta(hours=1))
    make_recipient("gone", gets_all=False)
    for text in "abcd":
        notify(text)
    notify("lost", to=["gone"])
    notify("unknown", to=["nobody"])
    plan()
    Delivery.objects.filter(name="gone").update(status="failed", due_at=None, ended_at=timezone.now())

    gauges = {gauge.label: (gauge.value, gauge.note) for gauge in context_of(admin, **around_now())["gauges"]}

    assert gauges["Suppressed"] == ("1", "1 held, 3 merged into others")
    assert gauges["Spoke"] == ("6", "0 messages sent, 1 not sent")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ({"from": "2026-11-23T07:00", "to": "2026-11-22T07:00"}, "earlier than the end"),
        ({"from": "soon"}, "from: Enter a date and time"),
    ],
)
def test_an_invalid_time_span_shows_its_error(admin: Client, query: dict[str, str], words: str) -> None:
    [notice] = context_of(admin, **query)["notices"]

    assert words in notice.text


def test_many_agents_are_cut_and_cost_the_same(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overnight, "LANES", 1)
    queries_of(admin, PATH)  # fills what is cached for the life of a process
    for_none = queries_of(admin, PATH)
    for number in range(3):
        make_run(status="succeeded", agent=f"agent-{number}", started_at=timezone.now())

    assert len(context_of(admin, **around_now())["lanes"]) == 1
    assert len(context_of(admin, **around_now())["table"].rows) == 3
    assert queries_of(admin, PATH) == for_none


def test_the_overnight_page_requires_permission_to_view_runs(log_in: LogIn) -> None:
    assert log_in("runs.view_run", name="may").get(PATH).status_code == 200
    assert log_in("runs.view_alarm", name="may-not").get(PATH).status_code == 403
