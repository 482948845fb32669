"""Hosts that are away are tried seldom, one message at a time."""

from runs.network.breakers import LONGEST_PAUSE, MOST_AT_ONCE, Breakers


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_pauses_grow_to_the_longest_and_end_with_a_success() -> None:
    clock = Clock()
    breakers = Breakers(clock=clock)
    pauses = []
    for _ in range(9):
        breakers.failed("a")
        pauses.append(breakers.opened["a"].retry_at - clock.now)

    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert breakers.away == ["a"] and breakers.room("a") == 0 and breakers.room("b") == MOST_AT_ONCE

    clock.now += LONGEST_PAUSE
    assert breakers.room("a") == 1  # one asks whether it is back
    breakers.began("a")
    assert breakers.full == ["a"]
    breakers.ended("a")
    breakers.succeeded("a")
    assert breakers.room("a") == MOST_AT_ONCE


def test_a_host_that_names_a_pause_counts_as_away_for_that_long() -> None:
    clock = Clock()
    breakers = Breakers(clock=clock)

    breakers.failed("a", pause=600.0)
    clock.now += 599

    assert breakers.is_away("a")


def test_a_busy_host_leaves_threads_for_others() -> None:
    breakers = Breakers()
    for _ in range(MOST_AT_ONCE):
        breakers.began("a")

    assert breakers.full == ["a"]


def test_an_address_without_a_host_is_never_away() -> None:
    breakers = Breakers()
    breakers.failed("")
    for _ in range(20):
        breakers.began("")

    assert breakers.away == [] and breakers.full == []
