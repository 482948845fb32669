"""Switches of a real stack, while its dispatchers are killed at every moment, and after none was there for a while."""

import time
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.points import Points
from tests.support.stack import Stack, StackMaker, dead, eventually
from tests.support.switches import OPENED_OR_CLOSED
from tests.support.triggers import make_event
from triggers.sources.edit import create_source

pytestmark = pytest.mark.chaos

MOMENTS = ("before_absence_commit", "after_absence_commit", "before_dispatch_commit", "after_dispatch_commit")
SWITCHES = 20
# Events that wait for dispatch, and switches that are not open.
UNDONE = """
SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL
UNION ALL SELECT 1 FROM triggers_source source LEFT JOIN triggers_switchtimer timer ON timer.source_id = source.id
WHERE source.kind = 'absence' AND timer.state IS DISTINCT FROM 'open' LIMIT 1
"""
# Episodes in whose time the awaited event came.
UNTRUE = """
SELECT opened.data FROM triggers_event opened JOIN triggers_event seen
  ON seen.type = 'visitor.came' AND 'switch-' || (seen.data->>'n') = opened.data->>'switch'
  AND seen.received_at > (opened.data->>'since')::timestamptz AND seen.received_at <= (opened.data->>'due')::timestamptz
WHERE opened.type = 'absence.opened'
"""


def make_switches(stack: Stack, count: int, **settings: str) -> None:
    with stack.orm():
        for number in range(count):
            filter = f"event.data.n == {number}"
            create_source(
                f"switch-{number}",
                kind="absence",
                settings={"types": "visitor.came", "filter": filter, **settings},
                by="test",
            )


def episodes(stack: Stack) -> dict[str, list[str]]:
    """By switch, in order: what was recorded of its episodes, each with its number."""
    found = defaultdict(list)
    for row in stack.query(OPENED_OR_CLOSED):
        found[row["slug"]].append(f"{row['type']} {row['episode']}")
    return found


def test_each_absence_is_reported_once_while_one_of_two_dispatchers_is_killed_at_every_moment(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    points = Points(tmp_path / "points")
    stack = make_stack(env=points.env)
    make_switches(stack, SWITCHES, within="2s")
    dispatchers = [stack.start("dispatcher") for _ in range(2)]
    eventually(lambda: not stack.query(UNDONE))

    for moment in MOMENTS:
        points.arm(moment, "kill")
        with stack.orm():
            for number in range(SWITCHES):
                make_event(data={"n": number})
        [killed] = eventually(lambda: dead(dispatchers))
        points.release(moment)
        killed.restart()
        eventually(lambda: not stack.query(UNDONE))

    rounds = range(1, len(MOMENTS) + 2)
    expected = [f"absence.{word} {number}" for number in rounds for word in ("opened", "closed")][:-1]
    assert episodes(stack) == {f"switch-{number}": expected for number in range(SWITCHES)}
    assert stack.query(UNTRUE) == []


def test_after_an_outage_of_dispatch_nothing_opens_that_was_not_absent(make_stack: StackMaker) -> None:
    stack = make_stack(env={"WAKEFUL_DISPATCH_BATCH": "1"})
    make_switches(stack, 2, within="3s")
    dispatcher = stack.start("dispatcher")
    eventually(lambda: len(stack.query("SELECT 1 FROM triggers_switchtimer")) == 2)
    with stack.orm():
        make_event(data={"n": 0})
    eventually(lambda: stack.query("SELECT 1 FROM triggers_switchtimer WHERE seen_at IS NOT NULL"))
    dispatcher.stop()
    with stack.orm():
        for _ in range(12):  # longer than the time of the switch
            for _ in range(20):
                make_event(type="noise")
            make_event(data={"n": 0})
            time.sleep(0.5)

    dispatcher.restart()

    eventually(lambda: not stack.query("SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL"))
    eventually(lambda: episodes(stack).keys() == {"switch-0", "switch-1"})
    assert stack.query(UNTRUE) == []
