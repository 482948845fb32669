"""The tool schedule: an agent wakes itself again and again, within what its trigger may do."""

from datetime import timedelta
from uuid import uuid4

import pytest

from agents.exceptions import Permanent
from agents.kernel.effects import Effects, Standing
from agents.testing import Unanswered
from runs.attempt.effects import SCHEDULE
from runs.models import OutboxMessage
from tests.support.tools import call
from tests.support.triggers import make_trigger
from triggers.models import Trigger
from triggers.schedules.agent_schedules import check_ahead
from triggers.schedules.rows import add_schedule
from triggers.schedules.rules.as_json import parse_rule

pytestmark = pytest.mark.django_db


def test_the_tool_sets_and_deletes_a_schedule_of_its_own_trigger() -> None:
    called = call("schedule", {"name": "look", "cron": "0 9 * * mon-fri", "tz": "Europe/Vienna"}, {"name": "look"})

    made, deleted = called.done.schedules
    assert (made.name, made.cron, made.tz, made.spacing) == (
        "look",
        "0 9 * * mon-fri",
        "Europe/Vienna",
        timedelta(minutes=15),
    )
    assert (deleted.cron, deleted.every) == ("", None)


def test_cron_together_with_every_is_refused() -> None:
    called = call("schedule", {"name": "look", "cron": "0 9 * * *", "every": "2h"})

    assert not called.done.schedules
    assert "either cron or every" in called.results[0]


def test_schedule_in_a_tainted_run_needs_approval() -> None:
    with pytest.raises(Unanswered, match="wants to call the tool schedule"):
        call("schedule", {"name": "look", "every": "2h"}, is_tainted=True)


@pytest.mark.parametrize(
    ("rule", "is_allowed"),
    [
        ({"every": timedelta(minutes=15)}, True),
        ({"every": timedelta(minutes=14)}, False),
        ({"cron": "*/15 * * * *"}, True),
        ({"cron": "*/10 * * * *"}, False),
        ({"cron": "0,5 3 1 1 *"}, False),
        ({"cron": "55 8 * * *"}, True),
    ],
)
def test_a_schedule_of_the_tool_fires_at_most_every_15_minutes(rule: dict[str, object], is_allowed: bool) -> None:
    assert accepts(make_trigger("plain"), Standing(name="look", spacing=timedelta(minutes=15), **rule)) == is_allowed  # type: ignore[arg-type]


def test_a_schedule_of_the_tool_fires_at_most_at_the_rate_of_its_trigger() -> None:
    rated = make_trigger("rated", policy={"rate": "1/h"})

    assert accepts(rated, Standing(name="look", spacing=timedelta(minutes=15), every=timedelta(hours=1)))
    assert not accepts(rated, Standing(name="look", spacing=timedelta(minutes=15), every=timedelta(minutes=30)))
    assert accepts(rated, Standing(name="look", every=timedelta(minutes=30)))  # code may


def test_all_schedules_that_runs_have_set_share_one_limit() -> None:
    trigger = make_trigger("plain")
    quarter = timedelta(minutes=15)
    for name, minute in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        add_schedule(trigger, name=f"plain/{name}", rule=parse_rule(cron=f"{minute} * * * *", tz="UTC"))

    assert not accepts(
        trigger, Standing(name="e", spacing=quarter, cron="5 * * * *"), "together fire more than 4 times"
    )
    assert not accepts(trigger, Standing(name="e", spacing=quarter, every=timedelta(hours=1)), "together fire more")
    assert accepts(trigger, Standing(name="d", spacing=quarter, cron="5 * * * *"))  # it changes one of them
    assert accepts(trigger, Standing(name="e", cron="5 * * * *"))  # code may
    both = [Standing(name="d"), Standing(name="e", spacing=quarter, cron="5 * * * *")]
    check_ahead(trigger.pk, Effects(standings=both))


def test_schedules_of_earlier_steps_of_the_run_count_before_they_are_rows() -> None:
    trigger = make_trigger("plain")
    for name, minute in (("a", 1), ("b", 2), ("c", 3), ("d", 4)):
        payload = {
            "trigger": str(trigger.pk),
            "run": str(uuid4()),
            "name": name,
            "cron": f"{minute} * * * *",
            "tz": "UTC",
        }
        OutboxMessage.objects.create(topic=SCHEDULE, key=str(trigger.pk), payload={**payload, "every": None})

    last = Standing(name="e", spacing=timedelta(minutes=15), cron="5 * * * *")

    assert not accepts(trigger, last, "together fire more than 4 times")


def accepts(trigger: Trigger, standing: Standing, why: str = "more often than every") -> bool:
    try:
        check_ahead(trigger.pk, Effects(standings=[standing]))
    except Permanent as refused:
        assert why in str(refused)
        return False
    return True
