"""Every commit whose NOTIFY was left out is found by a look that follows one that was sent, and few looks are made."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.dispatch.follow_up import AGAIN, AT_MOST, FOLLOW_UP, FollowUp

THROTTLE = 0.025  # the longest that the checks allow
LOOK = 0.005  # seconds that a look lasts


@pytest.fixture
def clock() -> Iterator[list[float]]:
    now = [100.0]
    with patch("time.monotonic", lambda: now[0]):
        yield now


def after_look(kept: FollowUp, *, has_worked: bool = False, has_more: bool = False, began: float) -> float | None:
    kept.looked(began, has_worked=has_worked, has_more=has_more)
    return kept.wait


def test_one_look_follows_a_notify_and_then_none(clock: list[float]) -> None:
    kept = FollowUp()
    assert kept.wait is None
    kept.hear()

    assert after_look(kept, began=clock[0]) == pytest.approx(FOLLOW_UP)
    clock[0] += FOLLOW_UP
    assert after_look(kept, began=clock[0]) is None


def test_one_look_follows_own_work_and_comes_sooner_if_there_may_be_more(clock: list[float]) -> None:
    kept = FollowUp()

    assert after_look(kept, began=clock[0], has_worked=True) == pytest.approx(FOLLOW_UP)
    assert after_look(kept, began=clock[0], has_worked=True, has_more=True) == pytest.approx(AGAIN)
    clock[0] += FOLLOW_UP
    assert after_look(kept, began=clock[0]) is None


def test_further_notifies_put_the_look_off_a_little(clock: list[float]) -> None:
    kept, began = FollowUp(), clock[0]
    for _ in range(9):
        kept.hear()
        clock[0] += 0.01

    assert kept.wait == 0.0
    assert clock[0] - began > AT_MOST


def test_a_look_that_began_too_early_is_followed_by_another(clock: list[float]) -> None:
    kept = FollowUp()
    kept.hear()
    clock[0] += FOLLOW_UP - 0.001
    began = clock[0]
    clock[0] += 0.1  # it lasts long

    assert after_look(kept, began=began) == 0.0


@dataclass
class Writer:
    """A process that commits, and sends a NOTIFY unless it has sent one within the throttle. Each arrives after a delay."""

    delay: float
    sent: list[float] = field(default_factory=list)

    def commit(self, at: float) -> None:
        if not self.sent or at - self.sent[-1] >= THROTTLE:
            self.sent.append(at)


@given(
    st.lists(
        st.tuples(st.floats(0, 0.02), st.lists(st.floats(0.0001, 0.06), min_size=1, max_size=12)),
        min_size=1,
        max_size=3,
    )
)
def test_a_look_begins_soon_after_every_commit(writers: Sequence[tuple[float, Sequence[float]]]) -> None:
    commits: list[float] = []
    notifies: list[float] = []
    for delay, gaps in writers:
        writer, now = Writer(delay), 0.0
        for gap in gaps:
            now += gap
            commits.append(now)
            writer.commit(now)
        notifies += [at + delay for at in writer.sent]

    began = looks_of(sorted(notifies))

    for commit in commits:
        assert any(commit <= look <= commit + AT_MOST + 0.02 + 2 * LOOK for look in began), (commit, began)


def looks_of(notifies: list[float]) -> list[float]:
    """When the looks of a dispatcher begin that sleeps until a NOTIFY has come, or until it owes a look."""
    kept, now, began, heard = FollowUp(), [0.0], list[float](), 0
    with patch("time.monotonic", lambda: now[0]):
        while True:
            wait = kept.wait
            until = float("inf") if wait is None else now[0] + wait
            if heard < len(notifies) and notifies[heard] <= until:
                now[0] = max(now[0], notifies[heard])
                while heard < len(notifies) and notifies[heard] <= now[0]:
                    heard += 1
                kept.hear()
            elif wait is None:
                return began
            else:
                now[0] = until
            look = now[0]
            began.append(look)
            now[0] += LOOK
            kept.looked(look, has_worked=False, has_more=False)
