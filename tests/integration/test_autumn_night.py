"""An autumn night in which the clock is put back, ticked through by processes that share a moved clock and are killed."""

from datetime import UTC, datetime

import pytest

from tests.integration.test_week_of_schedules import start_tickers
from tests.support.random_schedules import date_edits
from tests.support.stack import StackMaker, eventually
from tests.support.triggers import make_trigger
from triggers.models import Revision, Schedule
from triggers.schedules import edit as schedules
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.terms.policy import SchedulePolicy

BEGIN, END = datetime(2044, 10, 29, 23, 59, tzinfo=UTC), datetime(2044, 10, 30, 3, 1, tzinfo=UTC)
# In UTC; the clock of Vienna shows 02:00 at 00:00, and again at 01:00.
FIRES = {
    "*/30 * * * *": ["00:00", "00:30", "01:00", "01:30", "02:00", "02:30", "03:00"],
    "30 * * * *": ["00:30", "01:30", "02:30"],
    "0 */2 * * *": ["00:00", "01:00", "03:00"],
    "30 2 * * *": ["00:30"],
    "*/30 2 * * *": ["00:00", "00:30"],
    "0 0-23 * * *": ["00:00", "02:00", "03:00"],
}


@pytest.mark.timeout(180)
def test_wildcard_hours_fire_in_both_passes_of_the_night_and_fixed_hours_once(make_stack: StackMaker) -> None:
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
    stack.query("CREATE TABLE simulated (now timestamptz)")
    stack.query("INSERT INTO simulated VALUES (%s)", BEGIN)

    tickers, _ = start_tickers(stack, END)
    eventually(lambda: not tickers.is_alive())

    assert tickers.returncode == 0, tickers.output()[-3000:]
    fired: dict[str, list[str]] = {text: [] for text in FIRES}
    for event in stack.query("SELECT ce_source, time FROM triggers_event ORDER BY time"):
        fired[event["ce_source"]].append(f"{event['time'].astimezone(UTC):%H:%M}")
    assert fired == FIRES
