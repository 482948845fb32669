"""The page “What will wake next”: a list, a line, a month, in the operator's zone."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.config.console.test_pages import queries_of
from tests.support.journals import make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_heartbeat, make_trigger
from tests.triggers.upcoming.test_listing import armed, put_wake, put_window, waking
from triggers.models import Schedule
from triggers.schedules.firing import due_schedules

PATH = "/admin/coming/"
NINE = datetime(2050, 3, 7, 9, 0, tzinfo=UTC)  # a Monday
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def context_of(client: Client, zone: str = "UTC", **query: Any) -> Any:
    client.cookies["zone"] = zone
    answer = client.get(PATH, query)
    assert answer.status_code == 200
    return answer.context


def cells(context: Any) -> dict[str, Any]:
    """The days of the month by their date, those on which something comes."""
    return {f"{cell.date}": cell for week in context["weeks"] for cell in week if cell.count}


def rows(context: Any) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in context["table"].rows]


def soon(hours: float) -> datetime:
    return timezone.now() + hours * HOUR


@pytest.fixture
def busy() -> None:
    """Something of every kind within a few hours."""
    make_heartbeat("watch")
    trigger = make_trigger("digest", agent="reporter", types=[])
    put_wake(trigger, soon(1), "quarterly review")
    put_window(trigger, soon(2))
    make_wait(make_run(status="waiting", trigger="order", agent="seller"), key="sleep#1", due_at=soon(3))
    armed("reminder 1", soon(4), trigger=make_trigger("reminders"), kind="reminder", data={"text": "Call <Ada>"})
    due_schedules.settle()


# The list


def test_the_list_shows_time_kind_reason_and_count_of_each_wake(admin: Client, busy: None) -> None:
    listed = rows(context_of(admin, days=1))

    reasons = [(row[1].split(">")[-2].split("<")[0], row[2]) for row in listed]
    assert reasons == [
        ("heartbeat", "every 30 minutes"),  # not its name once more
        ("wake set by a run · reporter", "quarterly review"),
        ("end of a debounce or batch · reporter", "2 events wait to become one run"),
        ("timer of a waiting run · seller", "its sleep ends"),
        ("reminder · reminders", ""),
    ]
    assert listed[0][3].startswith("47 times more, until")
    assert "&lt;Ada&gt;" in admin.get(PATH).content.decode()


def test_the_list_is_filtered_by_kind_and_agent(admin: Client, busy: None) -> None:
    assert len(rows(context_of(admin, kind="wake"))) == 1
    assert len(rows(context_of(admin, agent="reporter"))) == 2
    assert len(rows(context_of(admin, kind="nonsense", agent="", days="x"))) == 5


def test_a_late_wake_is_marked_as_late(admin: Client) -> None:
    put_wake(make_trigger("digest"), soon(-1))

    assert "late" in rows(context_of(admin))[0][0]


def test_a_day_is_a_day_of_the_operators_zone(admin: Client) -> None:
    waking("early", datetime(2050, 3, 7, 23, 30, tzinfo=UTC))

    assert len(rows(context_of(admin, day="2050-03-07"))) == 1
    assert rows(context_of(admin, zone="Europe/Vienna", day="2050-03-07")) == []
    assert len(rows(context_of(admin, zone="Europe/Vienna", day="2050-03-08"))) == 1


def test_a_long_list_is_cut_with_a_note_and_a_link_to_more(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("config.console.operations.upcoming.SHOWN", 2)
    for number in range(3):
        put_wake(make_trigger(f"digest {number}"), soon(number))

    context = context_of(admin)

    assert len(rows(context)) == 2
    assert context["table"].note == "The first 2, with each schedule listed once; there may be more."
    assert "limit=500" in context["more"]
    assert len(rows(context_of(admin, limit=500))) == 3


def test_an_edit_that_beat_has_not_seen_is_named(admin: Client) -> None:
    waking("nightly", "3")
    Schedule.objects.update(stale=True)

    assert context_of(admin)["edited"] == 1
    assert "1 schedule edited just now" in admin.get(PATH).content.decode()


# The line


def test_the_line_has_a_lane_for_each_and_a_mark_for_each_time(admin: Client) -> None:
    make_heartbeat("watch")
    waking("all the time", 1, since=timezone.now())
    due_schedules.settle()

    often, beat = context_of(admin, view="line")["lanes"]

    [band] = often.marks
    assert (band.title, band.width > 90) == ("more than 100 times all the time", True)
    assert len(beat.marks) == 48
    assert [mark.left for mark in beat.marks] == sorted(mark.left for mark in beat.marks)
    assert 0 < beat.marks[0].left < 5 < 95 < beat.marks[-1].left <= 100


def test_hours_of_the_line_view_are_those_of_the_operators_zone(admin: Client) -> None:
    for zone in ("UTC", "Asia/Kathmandu"):
        hours = context_of(admin, zone=zone, view="line")["hours"]
        assert all(words.endswith(":00") and int(words[:2]) % 3 == 0 for _, words in hours)
        assert 7 <= len(hours) <= 8


# The month


def test_the_month_counts_what_comes_on_each_day(admin: Client) -> None:
    waking("often", 60, since=NINE - HOUR)
    waking("once", NINE + 20 * DAY)

    context = context_of(admin, view="month", month="2050-03")

    days = cells(context)
    assert context["month"] == "March 2050"
    assert (days["2050-03-07"].count, days["2050-03-08"].count) == ("15", "24")
    assert days["2050-03-08"].names == [("schedule", "often ×24")]
    assert days["2050-03-27"].names == [("schedule", "once"), ("schedule", "often ×24")]
    assert days["2050-03-27"].url == "/admin/coming/?day=2050-03-27"
    assert "2050-03-06" not in days


def test_days_of_the_month_view_are_those_of_the_operators_zone(admin: Client) -> None:
    waking("late", datetime(2050, 3, 7, 23, 30, tzinfo=UTC))
    put_wake(make_trigger("digest"), datetime(2050, 3, 9, 23, 30, tzinfo=UTC))

    assert list(cells(context_of(admin, view="month", month="2050-03"))) == ["2050-03-07", "2050-03-09"]
    vienna = context_of(admin, zone="Europe/Vienna", view="month", month="2050-03")
    assert list(cells(vienna)) == ["2050-03-08", "2050-03-10"]


def test_a_busy_day_names_the_first_wakes_and_counts_the_others(admin: Client) -> None:
    for number in range(6):
        waking(f"daily {number}", NINE)

    day = cells(context_of(admin, view="month", month="2050-03"))["2050-03-07"]

    assert (day.count, len(day.names), day.others) == ("6", 4, 2)


def test_a_day_that_is_not_counted_to_its_end_is_marked(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.upcoming.days.FIRES", 200)
    monkeypatch.setattr("triggers.upcoming.days.PER_DAY", 1)
    waking("all the time", 1, since=NINE)
    waking("another", NINE + HOUR)

    context = context_of(admin, view="month", month="2050-03")

    assert cells(context)["2050-03-08"].names == [("schedule", "all the time ×5+")]
    assert cells(context)["2050-03-08"].count == "5+"
    assert context["is_partial"]


@pytest.mark.parametrize("month", ["0001-01", "9999-12", "soon", ""])
def test_an_invalid_month_shows_the_current_one(admin: Client, month: str) -> None:
    assert context_of(admin, view="month", month=month)["month"] == f"{datetime.now(UTC):%B %Y}"


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../etc", ""])
def test_a_zone_that_there_is_not_is_utc(admin: Client, zone: str) -> None:
    assert str(context_of(admin, zone=zone)["asked"].zone) == "UTC"


# Who sees what, and at what price


def test_the_overview_links_to_the_page(admin: Client, busy: None) -> None:
    overview = admin.get("/admin/")

    assert f'<a class="text-link home-all" href="{PATH}">' in overview.content.decode()


@pytest.mark.parametrize("view", ["list", "line", "month"])
def test_the_page_has_the_same_number_of_queries_for_few_and_for_many_wakes(
    admin: Client, view: str, busy: None
) -> None:
    path = f"{PATH}?view={view}"
    queries_of(admin, path)
    for_few = queries_of(admin, path)
    for number in range(5):
        make_heartbeat(f"another {number}")
        waking(f"daily {number}", "3")
        put_wake(make_trigger(f"waker {number}"), soon(2))
    due_schedules.settle()

    assert queries_of(admin, path) == for_few
    assert for_few < 25
