"""Find runs by the events they handle: a run's id begins with the time of its event."""

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from agents.kernel.ids import ids_beside
from runs.db.sql import fetch

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from runs.models import Run

# Two queries, each with its own index; for one condition with OR, PostgreSQL may scan all runs in the order of their ids.
RUNS_OF_EVENTS = """
SELECT run.id FROM unnest(%s::uuid[], %s::uuid[], %s::uuid[]) AS event(id, low, high), LATERAL (
  SELECT id FROM runs_run WHERE id BETWEEN event.low AND event.high AND event_ids @> ARRAY[event.id]
  UNION ALL
  SELECT id FROM runs_run WHERE cardinality(event_ids) > 1 AND event_ids @> ARRAY[event.id]
) run
"""


def runs_of_event(event_id: UUID) -> "QuerySet[Run]":
    """The runs that handle an event."""
    return runs_of_events([event_id])


def runs_of_events(event_ids: Sequence[UUID]) -> "QuerySet[Run]":
    """The runs that handle any of a few events: runs with one event are in the primary key range of its time prefix; runs
    with several events have an index of their own."""
    from runs.models import Run

    ranges = [ids_beside(event_id) for event_id in event_ids]
    found = fetch(RUNS_OF_EVENTS, [list(event_ids), [low for low, _ in ranges], [high for _, high in ranges]])
    return Run.objects.filter(id__among=sorted({run_id for (run_id,) in found}))


def beside(column: str) -> str:
    """SQL: BETWEEN the lowest and the highest id with the time prefix of the id in a column."""
    prefix = f"left(replace({column}::text, '-', ''), 12)"
    return f"BETWEEN ({prefix} || repeat('0', 20))::uuid AND ({prefix} || repeat('f', 20))::uuid"
