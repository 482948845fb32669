"""The agent calendar-brief: who, what, when in the meeting's zone, and the last notes that name it."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from agents.exceptions import Permanent
from agents.library.calendar_brief import brief_of, calendar_brief, last_day, notes_on
from agents.testing import run_agent
from agents.work_notes import append_note

pytestmark = pytest.mark.django_db

STARTS = (datetime.now(UTC) + timedelta(minutes=15)).astimezone(ZoneInfo("America/New_York")).replace(microsecond=0)
MEETING: dict[str, Any] = {
    "id": "42",
    "title": "Budget 2027",
    "description": "Cuts,\n\nand   hopes",
    "location": "Room 1",
    "link": "",
    "meeting": "https://meet.example.com/42",
    "starts_at": STARTS.isoformat(),
    "ends_at": (STARTS + timedelta(hours=1)).isoformat(),
    "zone": "America/New_York",
    "is_all_day": False,
    "organizer": {"name": "Ada", "address": "ada@example.org"},
    "attendees": [
        {"name": "Ada", "address": "ada@example.org", "response": "accepted"},
        {"name": "", "address": "bo@example.org", "response": "declined"},
    ],
}


def brief(**changes: Any) -> list[str]:
    done = run_agent(calendar_brief, data={**MEETING, **changes}, type="calendar.starts", from_strangers=True)
    return [notice.text for notice in done.notifications]


def test_a_brief_says_what_when_where_and_with_whom() -> None:
    ends = STARTS + timedelta(hours=1)
    last = f"{ends:%H:%M}" if ends.date() == STARTS.date() else f"{ends:%a %d %b %H:%M}"

    assert brief() == [
        "Budget 2027\n"
        f"When: {STARTS:%a %d %b}, {STARTS:%H:%M} to {last} (America/New_York)\n"
        "Where: Room 1, https://meet.example.com/42\n"
        "Who: Ada, bo@example.org (declined)\n"
        "About: Cuts, and hopes"
    ]


def test_the_last_notes_that_name_the_meeting_follow_the_newest_first(tmp_path: Path, settings: Any) -> None:
    settings.WAKEFUL_WORK_ROOTS = [str(tmp_path)]
    for back, text in [(0, "the budget 2027 is late"), (2, "Budget  2027:\nask Bo"), (3, "lunch"), (60, "Budget 2027")]:
        append_note(text, at=STARTS - timedelta(days=back), by="ada", key=f"{back}--")

    found = brief()[0].split("\nNotes:\n")[1].splitlines()

    assert [line.split(": ", 2)[2] for line in found] == ["the budget 2027 is late", "Budget 2027: ask Bo"]
    assert "<!--" not in str(found)


def test_notes_of_the_evening_are_found_where_the_day_of_the_installation_has_changed(settings: Any) -> None:
    settings.WAKEFUL_ZONE = "UTC"
    evening = datetime(2026, 11, 26, 19, 13, tzinfo=ZoneInfo("America/New_York"))

    assert (last_day(evening), last_day(evening.replace(hour=10))) == (date(2026, 11, 27), date(2026, 11, 26))


def test_notes_are_bounded_and_a_folder_in_their_place_is_passed_over(tmp_path: Path, settings: Any) -> None:
    settings.WAKEFUL_WORK_ROOTS = [str(tmp_path)]
    today = STARTS.date()
    (tmp_path / "notes" / f"{today}.md").mkdir(parents=True)
    day = datetime(today.year, today.month, today.day, 12, tzinfo=UTC) - timedelta(days=1)
    for number in range(9):
        append_note(f"Budget 2027 {number} {'x' * 1000}", at=day, by="ada", key=str(number))

    found = notes_on("Budget 2027", today)

    assert len(found) == 5 and "Budget 2027 8" in found[0]
    assert max(map(len, found)) < 320
    assert notes_on("Bud", today) == []


def test_a_meeting_that_is_over_has_no_brief() -> None:
    assert brief(ends_at=(STARTS - timedelta(hours=1)).isoformat()) == []


def test_a_crowd_is_counted_and_a_whole_day_has_no_hours() -> None:
    people = [{"name": f"P{number}", "address": f"p{number}@example.org", "response": ""} for number in range(30)]

    text = brief_of({**MEETING, "attendees": people, "is_all_day": True}, STARTS, STARTS + timedelta(days=1), [])

    assert "and 11 more" in text and ", all day (" in text


@pytest.mark.parametrize("changed", [{"starts_at": "soon"}, {"attendees": None}, {"title": 7, "ends_at": None}])
def test_what_is_no_meeting_fails(changed: dict[str, Any]) -> None:
    with pytest.raises(Permanent, match="not the data of a meeting"):
        brief(**changed)
