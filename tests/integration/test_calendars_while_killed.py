"""Meetings are made, moved and cancelled while the process that polls and the dispatcher are killed: each starts once, at its last time."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.support.list_server import Page, serving_lists
from tests.support.points import Points
from tests.support.stack import Stack, StackMaker, dead, eventually
from triggers.sources.edit import create_source

pytestmark = pytest.mark.chaos

EACH = 40
# In turn: in the transaction that records a poll, behind its commit, and on both sides of the one that records starts.
DEATHS = ("source_fenced", "before_outbox_commit", "source_recorded", "after_outbox_commit", "source_recorded")


def meeting(uid: str, at: datetime) -> str:
    times = [f"DTSTART:{at:%Y%m%dT%H%M%SZ}", "DURATION:PT30M"]
    return "\r\n".join(["BEGIN:VEVENT", f"UID:{uid}", f"SUMMARY:{uid}", *times, "END:VEVENT"])


def calendar(meetings: dict[str, datetime]) -> Page:
    events = [meeting(uid, at) for uid, at in meetings.items()]
    return Page("\r\n".join(["BEGIN:VCALENDAR", "VERSION:2.0", *events, "END:VCALENDAR", ""]).encode())


def starts(stack: Stack) -> list[tuple[str, datetime]]:
    rows = stack.query("SELECT data->>'title' AS title, time FROM triggers_event WHERE type = 'calendar.starts'")
    return [(row["title"], row["time"]) for row in rows]


def test_each_meeting_starts_once_at_its_last_time_while_processes_are_killed(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    far, near = now + timedelta(hours=9), now + timedelta(minutes=50)  # an hour before is later, and at once
    moved = {f"moved {number}": far for number in range(EACH)}
    gone = {f"gone {number}": far for number in range(EACH)}
    due: dict[str, datetime] = {}
    points = Points(tmp_path / "points")
    with serving_lists() as site:
        site.pages["/a.ics"] = calendar({**moved, **gone})
        stack = make_stack(env={**points.env, "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8"})
        with stack.orm():
            settings = {"every": "10s", "before": "1h", "begin_with": "all", "url": site.url("/a.ics")}
            create_source("meetings", kind="ics", settings=settings, by="test")
        processes = [stack.start(kind) for kind in ("dispatcher", "sources", "dispatcher", "sources")]
        eventually(lambda: stack.query("SELECT 1 FROM runs_outboxmessage WHERE topic = 'calendar'"))

        for number, point in enumerate(DEATHS, start=1):
            points.arm(point, "kill")
            moved = {uid: far + timedelta(minutes=number) for uid in moved}
            due |= {f"due {number} {each}": near for each in range(EACH)}
            site.pages["/a.ics"] = calendar({**moved, **gone, **due})
            eventually(lambda: dead(processes))
            points.release_all()
            for process in dead(processes):
                process.restart(wait=False)
            eventually(lambda: len(starts(stack)) >= len(due))  # noqa: B023  (called at once)

        moved = dict.fromkeys(moved, near + timedelta(minutes=1))
        site.pages["/a.ics"] = calendar({**moved, **due})
        eventually(lambda: len(starts(stack)) >= len(moved) + len(due))
        eventually(lambda: not stack.query("SELECT 1 FROM runs_outboxmessage WHERE topic = 'calendar'"))

    assert Counter(starts(stack)) == Counter({**moved, **due}.items())
    kinds = {
        row["type"]: row["count"] for row in stack.query("SELECT type, count(*) FROM triggers_event GROUP BY type")
    }
    assert kinds == {
        "calendar.starts": len(moved) + len(due),
        "calendar.created": 2 * EACH + len(due),
        "calendar.changed": EACH * (len(DEATHS) + 1),
        "calendar.cancelled": EACH,
    }
