"""Rules as people write them."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.triggers.schedules.rules.test_rule import ZONES, crons
from triggers.exceptions import RuleError
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.words import read_rule, text_of_rule

NOW = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)  # a Friday, 11:30 in Vienna


def read(text: str, tz: str = "Europe/Vienna") -> str:
    """The rule, as a crontab, a length, or a local time of Vienna."""
    rule = read_rule(text, tz, NOW)
    if isinstance(rule, Clocked):
        return f"{rule.at.astimezone(ZoneInfo('Europe/Vienna')):%a %Y-%m-%d %H:%M}"
    return rule.text if isinstance(rule, Cron) else rule.words


@pytest.mark.parametrize(
    ("text", "crontab"),
    [
        ("0 9 * * mon-fri", "0 9 * * mon-fri"),
        ("*/15 * * * *", "*/15 * * * *"),
        ("@daily", "0 0 * * *"),
        ("hourly", "0 * * * *"),
        ("hourly at :15", "15 * * * *"),
        ("every day at 9am", "0 9 * * *"),
        ("daily at 9:00", "0 9 * * *"),
        ("every day at midnight", "0 0 * * *"),
        ("Every Weekday at 09:00", "0 9 * * mon-fri"),
        ("on the 1st and 15th of every month at 08:00", "0 8 1,15 * *"),
        ("weekdays at 9:00 and 17:00", "0 9,17 * * mon-fri"),
        ("every day at 12 am", "0 0 * * *"),
        ("weekdays at 9:00", "0 9 * * mon-fri"),
        ("every monday and thursday at 17:30", "30 17 * * mon,thu"),
        ("every mon, wed and fri at 8:00", "0 8 * * mon,wed,fri"),
        ("monday to friday at 8:00", "0 8 * * mon-fri"),
        ("mon-fri 8:00", "0 8 * * mon-fri"),
        ("on tuesdays at noon", "0 12 * * tue"),
        ("every weekend at 10:00", "0 10 * * sat,sun"),
        ("every day at 9:00 and 17:00", "0 9,17 * * *"),
        ("every day at 9:00, 9:30, 17:00 and 17:30", "0,30 9,17 * * *"),
        ("on the 1st of every month at 08:00", "0 8 1 * *"),
        ("every 24 december at 18:00", "0 18 24 12 *"),
    ],
)
def test_a_recurring_calendar_phrase_is_read_as_a_crontab(text: str, crontab: str) -> None:
    assert read(text) == crontab


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("every 30m", "every 30 minutes"),
        ("every 90s", "every 1 minute 30 seconds"),
        ("every 1h30m", "every 1 hour 30 minutes"),
        ("every hour", "every 1 hour"),
        ("every two hours", "every 2 hours"),
        ("every half hour", "every 30 minutes"),
        ("every 0.5 seconds", "every 0.5 seconds"),
        ("every 2 weeks", "every 14 days"),
    ],
)
def test_every_so_often_is_an_interval(text: str, words: str) -> None:
    assert read(text) == words


@pytest.mark.parametrize(
    ("text", "local"),
    [
        ("in 20 minutes", "Fri 2026-11-20 11:50"),
        ("in 1h30m", "Fri 2026-11-20 13:00"),
        ("in half an hour", "Fri 2026-11-20 12:00"),
        ("in a week", "Fri 2026-11-27 11:30"),
        ("in 3 days at 9:00", "Mon 2026-11-23 09:00"),
        ("at 2026-12-01T09:00", "Tue 2026-12-01 09:00"),
        ("at 2026-12-01T09:00Z", "Tue 2026-12-01 10:00"),
        ("at 2026-12-01T09:00+05:45", "Tue 2026-12-01 04:15"),
        ("on 2026-12-01 at 9am", "Tue 2026-12-01 09:00"),
        ("2026-12-01 09:00 Asia/Tokyo", "Tue 2026-12-01 01:00"),
        ("tomorrow at 9:00", "Sat 2026-11-21 09:00"),
        ("at 17:00", "Fri 2026-11-20 17:00"),
        ("at 9:00", "Sat 2026-11-21 09:00"),
        ("on monday at 9:00", "Mon 2026-11-23 09:00"),
        ("friday at 17:00", "Fri 2026-11-20 17:00"),
        ("friday at 9:00", "Fri 2026-11-27 09:00"),
        ("1 march 2028 at 6:00", "Wed 2028-03-01 06:00"),
        ("1 march at 6:00", "Mon 2027-03-01 06:00"),
        ("29 february at 6:00", "Tue 2028-02-29 06:00"),
        ("tomorrow at 9:00 America/New_York", "Sat 2026-11-21 15:00"),
        ("2027-03-28 02:30", "Sun 2027-03-28 03:00"),
    ],
)
def test_a_single_time_is_read_in_its_zone(text: str, local: str) -> None:
    assert read(text) == local


def test_a_zone_at_the_end_stands_before_the_one_given() -> None:
    rule = read_rule("every weekday at 9am Asia/Kathmandu", "Europe/Vienna")

    assert rule == Cron.parse("0 9 * * mon-fri", "Asia/Kathmandu")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no rule; write such as"),
        ("soon", "'soon' is no rule; write such as \"every weekday"),
        ("30m", 'once or again and again? Write "in 30m", or "every 30m"'),
        ("at 9", "'9' is no time of day"),
        ("every day", 'at what time? Write such as "every day at 09:00"'),
        ("every weekday", "at what time"),
        ("tomorrow", "at what time"),
        ("every day at 9", "'9' is no time of day"),
        ("every second day at 9:00", "'every second day' names no days"),
        ("every day at 25:00", "'25:00' is no time of day"),
        ("every day at 13pm", "'13pm' is no time of day"),
        ("every day at 9:00 and 17:30", "write two schedules"),
        ("tomorrow at 9:00 and 17:00", "once is at one time"),
        ("every 2 months", "is no rule"),
        ("at 2026-02-30T09:00", "is not a valid date and time"),
        ("30 february at 9:00", "there is no such day"),
        ("every 31 june at 9:00", "never fires"),
        ("on the 32nd of every month at 9:00", "day of month 32 is not between"),
        ("0 9 * *", "4 fields, not 5"),
        ("0 9 13 * fri", "cron would fire on either"),
        ("every 10ms", "is not between 0.1 s and 100 years"),
        ("every 0 seconds", "is not between 0.1 s and 100 years"),
        ("in 999999999999 days", "too long for the calendar"),
        ("hourly at :75", "minute 75 is not between"),
    ],
)
def test_an_unclear_phrase_is_refused_with_forms_that_work(text: str, message: str) -> None:
    with pytest.raises(RuleError) as refused:
        read_rule(text, now=NOW)

    assert message in str(refused.value)
    assert refused.value.field == "when"


def test_a_zone_that_is_not_there_is_the_zones_error() -> None:
    with pytest.raises(RuleError, match="there is no zone 'Europe/Wien'") as refused:
        read_rule("every day at 9:00", "Europe/Wien")

    assert refused.value.field == "tz"


@given(cron=crons())
def test_the_text_of_a_crontab_is_read_as_the_same_crontab(cron: Cron) -> None:
    if cron.day_of_month == "*" or cron.day_of_week == "*":  # else the text means something else to cron
        assert read_rule(cron.text, str(cron.zone)) == cron


@given(
    rule=st.builds(Interval, every=st.integers(1, 10**8).map(lambda seconds: timedelta(seconds=seconds)))
    | st.builds(Clocked, at=st.datetimes(datetime(2000, 1, 1), datetime(2090, 1, 1)).map(lambda at: at.replace(tzinfo=UTC, microsecond=0))),
    tz=st.sampled_from(ZONES),
)  # fmt: skip
def test_the_words_of_a_rule_are_read_as_the_same_rule(rule: Rule, tz: str) -> None:
    assert read_rule(rule.words, tz) == read_rule(str(rule), tz) == rule
    if not (isinstance(rule, Clocked) and rule.at.astimezone(ZoneInfo(tz)).fold):
        assert read_rule(text_of_rule(rule, ZoneInfo(tz)), tz) == rule


SCRAPS = [
    "every", "at", "in", "on", "the", "monday", "day", "1st", "of", "month", "9:00", "9am", "and", ",", "24", "december",
    "30m", "*", "2026-12-01", "UTC",
]  # fmt: skip


@given(st.text(max_size=40) | st.lists(st.sampled_from(SCRAPS), max_size=7).map(" ".join))
def test_whatever_is_written_is_a_rule_or_refused_with_a_reason(text: str) -> None:
    try:
        rule = read_rule(text, "Europe/Vienna", NOW)
    except RuleError as error:
        assert str(error)
    else:
        assert rule.words
