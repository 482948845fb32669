"""An autumn night in which the clock is put back: `celery beat` by a moved clock, and processes that tick and are killed."""

from datetime import UTC, datetime

import pytest

from tests.integration.test_week_of_schedules import start_tickers
from tests.support.random_schedules import date_edits
from tests.support.stack import Stack, StackMaker, eventually
from tests.support.triggers import make_trigger
from triggers.models import Revision, Schedule
from triggers.schedules import edit as schedules
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.terms.policy import SchedulePolicy

BEGIN, END = datetime(2044, 10, 29, 23, 59, tzinfo=UTC), datetime(2044, 10, 30, 3, 1, tzinfo=UTC)
SECOND_PASS = datetime(2044, 10, 30, 1, tzinfo=UTC)
# In UTC; the clock of Vienna shows 02:00 at 00:00, and again at 01:00.
FIRES = {
    "*/30 * * * *": ["00:00", "00:30", "01:00", "01:30", "02:00", "02:30", "03:00"],
    "30 * * * *": ["00:30", "01:30", "02:30"],
    "0 */2 * * *": ["00:00", "01:00", "03:00"],
    "30 2 * * *": ["00:30"],
    "*/30 2 * * *": ["00:00", "00:30"],
    "0 0-23 * * *": ["00:00", "02:00", "03:00"],
}
# Beat takes the time from the function `clock_timestamp`; this one is found first.
MOVED_CLOCK = [
    "CREATE SCHEMA moved",
    "CREATE TABLE moved.clock (now timestamptz)",
    "CREATE FUNCTION moved.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS 'SELECT now FROM moved.clock'",
    "DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET search_path = moved, pg_catalog, public', current_database()); END $$",
]
IS_DUE = "SELECT 1 FROM triggers_schedule WHERE due_at <= (SELECT now FROM moved.clock) OR stale"


@pytest.fixture
def stack(make_stack: StackMaker) -> Stack:
    """A schedule of each crontab, made at the beginning of the night."""
    stack = make_stack()
    with stack.orm():
        trigger = make_trigger("anything", types=[])
        for text in FIRES:
            schedules.create_schedule(
                name=text,
                trigger=trigger,
                rule=Cron.parse(text, "Europe/Vienna"),
                policy=SchedulePolicy(catch_up="all"),
                by="cli:test",
            )
        Schedule.objects.update(created_at=BEGIN)
        Revision.objects.all().delete()
        date_edits(BEGIN)
    return stack


def fired(stack: Stack) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {text: [] for text in FIRES}
    for event in stack.query("SELECT ce_source, time FROM triggers_event ORDER BY time"):
        found[event["ce_source"]].append(f"{event['time'].astimezone(UTC):%H:%M}")
    return found


@pytest.mark.timeout(180)
def test_wildcard_hours_fire_in_both_passes_of_the_night_and_fixed_hours_once(stack: Stack) -> None:
    stack.query("CREATE TABLE simulated (now timestamptz)")
    stack.query("INSERT INTO simulated VALUES (%s)", BEGIN)

    tickers, _ = start_tickers(stack, END)
    eventually(lambda: not tickers.is_alive())

    assert tickers.returncode == 0, tickers.output()[-3000:]
    assert fired(stack) == FIRES


@pytest.mark.chaos
@pytest.mark.timeout(180)
def test_celery_beat_fires_the_same_and_survives_a_kill_before_the_second_pass(stack: Stack) -> None:
    for statement in MOVED_CLOCK:
        stack.query(statement)
    stack.query("INSERT INTO moved.clock VALUES (%s)", BEGIN)

    beat = stack.start("beat")
    while (now := next_due(stack)) <= END:
        if now == SECOND_PASS:
            beat.kill()
        stack.query("UPDATE moved.clock SET now = %s", now)
        if now == SECOND_PASS:
            beat.restart()
        stack.query("SELECT pg_notify('wakeful_beat', '')")

    assert fired(stack) == FIRES


def next_due(stack: Stack) -> datetime:
    """Once Beat has done what is due by now."""
    eventually(lambda: not stack.query(IS_DUE))
    due: datetime = stack.query("SELECT min(due_at) AS due FROM triggers_schedule")[0]["due"]
    return due
