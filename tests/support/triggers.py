"""Rows for tests, with sane defaults."""

from datetime import timedelta
from typing import Any

from django.utils import timezone
from django_celery_beat.models import IntervalSchedule, PeriodicTask
from uuid_utils.compat import uuid7

from agents.kernel.reserved_types import RESERVED
from runs.db.sql import execute
from runs.models import NIL
from triggers.accept import Incoming, accept, builtin_source
from triggers.models import Decision, Event, Schedule, Trigger

# It takes minutes: a regular expression over megabytes, hundreds of times. The library ends what only iterates.
HOURS = (
    f'["{"a" * 100}"]{".map(x, x + x)" * 17}'
    f".all(x, [{','.join('1' * 90)}].all(y, [{','.join('1' * 90)}].all(z, !x.matches('(a|aa)+c'))))"
)


def make_trigger(slug: str = "greeter", **fields: Any) -> Trigger:
    return Trigger.objects.create(slug=slug, **{"agent": slug, "types": ["visitor.*"], **fields})


def make_paused_trigger(slug: str = "greeter", **fields: Any) -> Trigger:
    return make_trigger(slug, paused_at=timezone.now(), paused_reason="broken", **fields)


def make_event(*, type: str = "visitor.came", **fields: Any) -> Event:
    """An event as the command line would record it; of a reserved type as its own source does."""
    values = {
        "source_id": builtin_source(RESERVED.get(type, "cli")),
        "ce_source": "cli:test",
        "ce_id": str(uuid7()),
        **fields,
    }
    [accepted] = accept([Incoming(type=type, **values)])
    return Event.objects.get(pk=accepted.event_id)


def hold(event: Event, trigger: Trigger, *, replay_id: Any = NIL) -> Decision:
    """The decision the dispatcher takes on an event of a paused trigger."""
    return Decision.objects.create(event=event, trigger=trigger, replay_id=replay_id, outcome="held")


def make_heartbeat(slug: str = "watch", *, agent: str = "", **columns: Any) -> Schedule:
    """Every 30 minutes; its agent may set a pace from 5 minutes to 4 hours."""
    trigger = make_trigger(slug, agent=agent or slug, types=[], overlap=Trigger.Overlap.QUEUE_ONE)
    interval, _ = IntervalSchedule.objects.get_or_create(every=30, period="minutes")
    task = PeriodicTask.objects.create(name=slug, task="triggers.fire_schedule", interval=interval)
    pace = {"pace_min": timedelta(minutes=5), "pace_max": timedelta(hours=4)}
    columns = {"kind": Schedule.Kind.HEARTBEAT, "trigger": trigger, **pace, **columns}
    Schedule.objects.filter(task=task).update(**columns)
    return Schedule.objects.select_related("task", "trigger").get(task=task)


def fill_with_copies(event: Event, columns: dict[str, str], count: int = 5_000) -> None:
    """Add copies of an event that differ in the columns, each an SQL expression over `n`, and take statistics of them."""
    others = "".join(f", '{name}', {expression}" for name, expression in columns.items())
    execute(
        f"""
        INSERT INTO triggers_event
        SELECT copy.* FROM triggers_event AS event CROSS JOIN generate_series(1, %s::int) AS n CROSS JOIN LATERAL
          jsonb_populate_record(event, jsonb_build_object('id', gen_random_uuid(), 'ce_id', n::text, 'seq', event.seq + n{others})) AS copy
        WHERE event.id = %s::uuid
        """,
        [count, event.pk],
    )
    execute("ANALYZE triggers_event")
