"""Days of deadlines on real dispatchers, in a minute: the clocks are moved, that of PostgreSQL included. One night the clocks go back, a
dispatcher is killed where it opens a switch, and for a while none is there."""

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from tests.support.moved_clock import MovedClock, can_move_clocks
from tests.support.points import Points
from tests.support.servers import reachable_folder
from tests.support.stack import Stack, StackMaker, dead, eventually
from tests.support.triggers import make_event
from triggers.sources.edit import create_source

pytestmark = [
    pytest.mark.chaos,
    pytest.mark.skipif(not can_move_clocks(), reason="no C compiler, so the clocks cannot be moved"),
]
VIENNA = ZoneInfo("Europe/Vienna")
STEADY = {
    "WAKEFUL_LEASE": "9d",
    "WAKEFUL_ALARM_AFTER": "9d",
    "WAKEFUL_ALARM_TRANSACTION": "9d",
    "WAKEFUL_SAFETY_LOOK": "1s",
}
BRANCHES = {"key": "event.data.branch", "keys": "main, release"}
EPISODES = """
SELECT source.slug, event.subject AS key, event.type, event.data->>'due' AS due, event.data->>'missed' AS missed
FROM triggers_event event JOIN triggers_source source ON source.id = event.source_id
WHERE event.type LIKE 'absence.%%' ORDER BY event.seq
"""
UNDONE = """
SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL
UNION ALL SELECT 1 FROM triggers_switchtimer WHERE look_at <= clock_timestamp() LIMIT 1
"""


def at(day: int, hour: int, minute: int = 0, second: int = 0, *, fold: int = 0) -> datetime:
    return datetime(2031, 10, day, hour, minute, second, fold=fold, tzinfo=VIENNA)


class Days:
    def __init__(self, stack: Stack, clock: MovedClock, points: Points) -> None:
        self.stack, self.clock, self.points = stack, clock, points

    def move(self, moment: datetime) -> None:
        self.clock.move_to(moment)
        self.stack.query("SELECT pg_notify('wakeful_dispatcher', '')")

    def settle(self) -> None:
        eventually(lambda: not self.stack.query(UNDONE))

    def passes(self, moment: datetime, branch: str) -> None:
        self.move(moment)
        with self.stack.orm():
            make_event(type="ci.passed", data={"branch": branch})

    def episodes(self, slug: str) -> list[tuple[str, ...]]:
        """What was recorded of a switch: key, word, the day of the deadline in its zone, and how many it stands for."""
        return [
            (row["key"], row["type"].removeprefix("absence."), day_of(row["due"]), row["missed"] or "")
            for row in self.stack.query(EPISODES)
            if row["slug"] == slug
        ]


def day_of(due: str) -> str:
    return f"{datetime.fromisoformat(due).astimezone(VIENNA):%d %H:%M}"


@pytest.fixture
def days(make_stack: StackMaker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Days]:
    with ExitStack() as cleanup:
        clock = MovedClock(cleanup.enter_context(reachable_folder()))
        clock.move_to(at(25, 10))  # a Saturday; the clocks go back in the night to come
        monkeypatch.setattr(
            "config.stack.embedded.postgres._ENVIRONMENT", {"PATH": "/usr/bin:/bin", "LC_ALL": "C", **clock.env}
        )
        points = Points(tmp_path / "points")
        stack = make_stack(own_servers=True, env={**STEADY, **clock.env, **points.env})
        yield Days(stack, clock, points)


@pytest.mark.timeout(600)
def test_each_deadline_opens_once_for_each_key_that_did_not_come_whatever_happens_to_dispatchers(days: Days) -> None:
    stack = days.stack
    with stack.orm():
        for slug, settings in {
            "ci": {"types": "ci.passed", "by": "15:00", "since": "12:00", **BRANCHES},
            "night": {"types": "never.comes", "by": "02:30", "since": "23:00"},
        }.items():
            create_source(slug, kind="absence", settings={**settings, "active_zone": VIENNA.key}, by="test")
    dispatchers = [stack.start("dispatcher") for _ in range(2)]
    eventually(lambda: len(stack.query("SELECT 1 FROM triggers_switchtimer")) == 3)

    # Killed where it opens: the other one opens it, once.
    days.passes(at(25, 13), "main")
    days.settle()
    days.points.arm("before_absence_commit", "kill")
    days.move(at(25, 15, 0, 5))
    [killed] = eventually(lambda: dead(dispatchers))
    days.points.release("before_absence_commit")
    killed.restart()
    eventually(lambda: days.episodes("ci"))
    days.settle()
    assert days.episodes("ci") == [("release", "opened", "25 15:00", "1")]

    # The clock shows 02:30 twice: once is enough.
    for fold in (0, 1):
        days.move(at(26, 2, 31, fold=fold))
        eventually(lambda: days.episodes("night"))
        days.settle()
    assert days.episodes("night") == [("", "opened", "26 02:30", "1")]

    # No dispatcher at 15:00: what came before it is in time, what comes after it is late.
    for dispatcher in dispatchers:
        dispatcher.stop()
    days.passes(at(26, 12, 30), "main")
    days.passes(at(26, 15, 30), "release")
    for dispatcher in dispatchers:
        dispatcher.restart()
    days.settle()
    eventually(lambda: len(days.episodes("ci")) == 3)
    assert days.episodes("ci")[1:] == [
        ("release", word, "26 15:00", number) for word, number in (("opened", "1"), ("closed", ""))
    ]

    # None for three days: the newest deadline opens, and shows that it stands for three.
    for dispatcher in dispatchers:
        dispatcher.stop()
    days.move(at(29, 16))
    for dispatcher in dispatchers:
        dispatcher.restart()
    eventually(lambda: len(days.episodes("ci")) == 5 and len(days.episodes("night")) == 2)
    days.settle()
    assert sorted(days.episodes("ci")[3:]) == [(key, "opened", "29 15:00", "3") for key in ("main", "release")]
    assert days.episodes("night")[1:] == [("", "opened", "29 02:30", "3")]
    again = stack.query("SELECT min(look_at) - clock_timestamp() AS wait FROM triggers_switchtimer")
    assert again[0]["wait"] > timedelta(hours=9)
