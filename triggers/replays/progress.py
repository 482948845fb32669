"""The progress of a replay, and the outcomes of its events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from runs.db.sql import fetch
from triggers.dispatch.replay_pieces import waiting
from triggers.models import Replay, Trigger

COUNTED = 200_000  # runs
RUNS = """
SELECT status, count(*) FROM (SELECT status FROM runs_run WHERE replay_id = %s::uuid LIMIT %s::int) run GROUP BY status
"""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Events taken of a total: dispatched (some are `waiting`, at least so many) or skipped. `runs` by status;
    `obstacle`: why no more events are taken.
    """

    total: int
    taken: int
    dispatched: int
    without_payload: int
    unheard: int
    waiting: int
    runs: Mapping[str, int]
    obstacle: str


def progress(replay: Replay) -> Progress:
    return Progress(
        total=replay.total,
        taken=replay.taken,
        dispatched=replay.dispatched,
        without_payload=replay.without_payload,
        unheard=replay.unheard,
        waiting=waiting(replay),
        runs=dict(fetch(RUNS, [replay.pk, COUNTED])),
        obstacle=_obstacle(replay),
    )


def triggers_of(replay: Replay) -> Sequence[tuple[UUID, str]]:
    """The replay's chosen triggers, with their slugs; deleted triggers have none."""
    slugs = dict(Trigger.objects.filter(pk__in=replay.triggers).values_list("pk", "slug"))
    return [(id, slugs.get(id, "")) for id in replay.triggers]


def _obstacle(replay: Replay) -> str:
    if replay.failures:
        return replay.error
    is_aimed = replay.status == Replay.Status.RUNNING and bool(replay.triggers)
    if is_aimed and not Trigger.objects.filter(pk__in=replay.triggers).exists():
        return "its triggers have been deleted: cancel it"
    return ""
