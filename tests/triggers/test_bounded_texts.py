"""Texts from outside, of any length and content, cost no parser more than a moment: too long a text is refused unread, and
the worst that is read costs little processor time, however busy the machine is."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.kernel.durations import parse_duration
from triggers.exceptions import RuleError
from triggers.schedules.clock import zone_of
from triggers.schedules.excluded_days import ExcludedDays
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.active_hours import ActiveHours
from triggers.schedules.terms.policy import SchedulePolicy

PARSERS: dict[str, tuple[Callable[[str], Any], int]] = {
    "when": (read_rule, 300),
    "crontab": (Cron.parse, 300),
    "hours": (ActiveHours.parse, 1000),
    "duration": (parse_duration, 100),
    "days": (ExcludedDays.parse, 50_000),
    "zone": (zone_of, 100),
    "start": (lambda text: SchedulePolicy.parse({"start": text}), 300),
    "jitter": (lambda text: SchedulePolicy.parse({"jitter": text}), 300),
    "exclude": (lambda text: SchedulePolicy.parse({"exclude": text}), 2500),
}
PIECES = [
    "0", "1", "9am, ", "9am and ", " ", "x", "mon", "mon ", "every ", "and ", ", ", "1st ", "9:00 ", "at ", "*/9 ", "-",
    "00:00-00:01,", "1h", "1.", "a/a", "\n", "2026-12-25 ", "..", "the 1st, ", "in 1 hour ", "1 hour and ",
]  # fmt: skip
TOP = 1.0  # seconds of processor time: a quadratic parser of the texts that used to be allowed takes many times that


def cost_of(parse: Callable[[str], Any], text: str) -> float:
    began = time.thread_time()
    with suppress(ValueError):  # a RuleError is one
        parse(text)
    return time.thread_time() - began


@pytest.mark.parametrize("parser", PARSERS)
@settings(max_examples=40)
@given(
    head=st.sampled_from(["", *PIECES]), piece=st.sampled_from(PIECES), tail=st.sampled_from(["", "x", "at 9:00", "|"])
)
def test_no_text_up_to_the_limit_costs_a_parser_more_than_a_moment(
    parser: str, head: str, piece: str, tail: str
) -> None:
    parse, most = PARSERS[parser]
    room = most - len(head) - len(tail)
    assert cost_of(parse, head + piece * (room // len(piece)) + tail) < TOP


@pytest.mark.parametrize("parser", PARSERS)
@given(text=st.text(alphabet="0123456789 :,-./*amonevry\u0660", max_size=100))
@settings(max_examples=40)
def test_no_text_breaks_a_parser(parser: str, text: str) -> None:
    assert cost_of(PARSERS[parser][0], text) < TOP


@pytest.mark.parametrize("parser", PARSERS)
def test_a_text_over_the_limit_is_refused_unread(parser: str) -> None:
    parse, most = PARSERS[parser]
    with pytest.raises(ValueError, match="at most"):
        parse("1" * (most + 1))


def test_a_calendar_has_so_many_days_and_ranges_of_so_many_years() -> None:
    lines = [f"{2000 + number // 300}-{number % 12 + 1:02}-{number % 28 + 1:02}" for number in range(1001)]
    with pytest.raises(RuleError, match="at most 1,000"):
        ExcludedDays.parse("\n".join(lines))
    with pytest.raises(RuleError, match="longer than 100 years"):
        ExcludedDays.parse("0001-01-01..9999-12-31")
