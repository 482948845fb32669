"""Switches of a real stack, after no dispatcher was there for a while."""

import time
from collections import defaultdict

import pytest

from tests.support.absence import OPENED_OR_CLOSED
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.triggers import make_event
from triggers.sources.edit import create_source

pytestmark = pytest.mark.chaos

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
