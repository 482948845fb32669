from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.db import connection

from runs.db.sql import fetch
from triggers.sources.kind import register
from triggers.sources.metrics.metric import Metric, MetricReader, MetricSettings, now
from triggers.sources.metrics.samples import Sample
from triggers.sources.runner import Assignment, Reader
from triggers.sources.settings import setting

COUNTED = 10_000  # rows; more are not counted
QUEUE, WAIT, FAILURES, EVENTS = "runs that wait", "longest wait", "share of failed runs", "undispatched events"
# One row for each series: its name, and its number.
FIGURES = {
    # A queue without waiting runs has 0, or its episode would never close.
    QUEUE: """
WITH RECURSIVE busy AS (
  (SELECT queue FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL ORDER BY queue LIMIT 1)
  UNION ALL
  SELECT (SELECT run.queue FROM runs_run run
    WHERE run.status = 'queued' AND run.ready_at IS NOT NULL AND run.queue > busy.queue ORDER BY run.queue LIMIT 1)
  FROM busy WHERE busy.queue IS NOT NULL),
names AS (
  SELECT queue AS name FROM busy WHERE queue IS NOT NULL
  UNION SELECT name FROM triggers_metricseries WHERE source_id = %(source)s::uuid)
SELECT name, (SELECT count(*) FROM (
  SELECT FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL AND queue = names.name LIMIT %(most)s::int) waiting)
FROM names""",
    WAIT: """
SELECT '', coalesce(extract(epoch FROM clock_timestamp() - min(ready_at)), 0) FROM (
  SELECT ready_at FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL LIMIT %(most)s::int) waiting""",
    FAILURES: """
SELECT '', 100.0 * count(*) FILTER (WHERE status = 'failed') / nullif(count(*), 0) FROM (
  SELECT status, finished_at FROM runs_run ORDER BY id DESC LIMIT %(most)s::int) newest
WHERE status IN ('succeeded', 'failed') AND finished_at > clock_timestamp() - interval '1 hour'""",
    EVENTS: """
SELECT '', count(*) FROM (SELECT FROM triggers_event WHERE dispatched_at IS NULL LIMIT %(most)s::int) waiting""",
}


@dataclass(frozen=True, kw_only=True)
class OwnFiguresSettings(MetricSettings):
    """Which figure."""

    figure: str = setting(
        QUEUE,
        "Figure",
        f"Runs that wait in each queue; the longest wait, in seconds; the share of failed runs of the last hour, in percent; events "
        f"that are not dispatched. Counts end at {COUNTED:,}.",
        choices=tuple(FIGURES),
    )


@register
class OwnFigures(Metric[OwnFiguresSettings]):
    name = "own_figures"
    label = "Figures of Wakeful"
    help_text = "Reads a figure of this installation: runs that wait, the longest wait, the share of failed runs, undispatched events."
    settings_class = OwnFiguresSettings
    needs_secret = False
    setup = (
        "Choose the figure.",
        "When some samples are there, try detectors on them and arm one. Do not let its agent make the figure worse.",
    )

    def connect(self, assignment: Assignment[OwnFiguresSettings]) -> Reader:
        return OwnFiguresReader(assignment, target=assignment.settings.figure)


class OwnFiguresReader(MetricReader):
    """Queries of our own on our own database, each of a bounded cost. There is no query of the operator's: it could read secrets."""

    def samples(self) -> Sequence[Sample]:
        names = {"most": COUNTED, "source": self.source.source_id}
        rows: list[tuple[Any, ...]] = fetch(FIGURES[self.settings.figure], names)
        return [Sample(series=name, at=now(), value=float(value)) for name, value in rows if value is not None]

    def close(self) -> None:
        connection.close()
