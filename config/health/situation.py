"""The situation of the installation: its processes, the work that waits and for how long, and the rows of all signs.

One statement, because the dispatcher runs it again and again; it only reads the heads of queues and the ends of indexes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.db import DatabaseError

from config.health.signs import Errors, Rows, read, signs
from runs.outbox import EVERYTHING_IS_PAUSED
from runs.ports import known_topics, ports
from runs.processes.alive import IS_ALIVE
from runs.queues.state import QUEUES, QueueState, parameters
from runs.sign import COUNTED, LATE, Sign

R = TypeVar("R")
T = TypeVar("T")

STOPPED_SHOWN = 20

# While all queues are paused, messages to the broker wait on purpose.
KNOWN_TOPICS = f"""(SELECT topic FROM unnest(%(topics)s::text[]) AS topic
    WHERE NOT (topic = ANY(%(held_topics)s::text[]) AND {EVERYTHING_IS_PAUSED})) known"""  # noqa: S608
# Editing one calendar may mark a million schedules as edited.
EDITED = "(SELECT edited_at FROM triggers_schedule WHERE stale LIMIT %(counted)s::int) edited"
LOOK = f"""
SELECT json_build_object(
  'processes', (SELECT coalesce(json_agg(shown), '[]') FROM (
    SELECT worker.id, worker.kind, worker.host, worker.pid, worker.version, worker.concurrency, worker.agents, worker.queues,
      {IS_ALIVE} AS alive, worker.draining_at IS NOT NULL AS draining, worker.stopped_reason,
      (SELECT json_object_agg(name, json_build_object('error', trouble->>'error',
         'lasted', extract(epoch FROM clock_timestamp() - (trouble->>'since')::timestamptz)::float8))
       FROM jsonb_each(worker.troubles) AS each(name, trouble)) AS troubles,
      extract(epoch FROM clock_timestamp() - worker.started_at)::float8 AS started,
      extract(epoch FROM clock_timestamp() - worker.seen_at)::float8 AS seen,
      extract(epoch FROM clock_timestamp() - worker.stopped_at)::float8 AS stopped
    FROM runs_worker worker
    WHERE worker.stopped_at IS NULL OR worker.id IN (
      SELECT id FROM runs_worker WHERE stopped_at > clock_timestamp() - interval '1 day'
      ORDER BY stopped_at DESC LIMIT %(stopped)s::int)
    ORDER BY worker.kind, worker.started_at) shown),
  'unseen', (SELECT coalesce(json_object_agg(kind, age), '{{}}') FROM (
    SELECT kind, extract(epoch FROM clock_timestamp() - max(seen_at))::float8 AS age FROM runs_worker GROUP BY kind) seen),
  'queues', (SELECT json_agg(queue) FROM ({QUEUES}) queue),
  'undispatched', (SELECT count(*) FROM (SELECT FROM triggers_event WHERE dispatched_at IS NULL LIMIT %(counted)s::int) waiting),
  'undispatched_age', (SELECT extract(epoch FROM clock_timestamp() - received_at)::float8
    FROM triggers_event WHERE dispatched_at IS NULL ORDER BY seq LIMIT 1),
  'outbox', (SELECT count(*) FROM (SELECT FROM {KNOWN_TOPICS} CROSS JOIN LATERAL (
    SELECT FROM runs_outboxmessage WHERE topic = known.topic AND available_at <= (SELECT clock_timestamp())
    LIMIT %(counted)s::int) message LIMIT %(counted)s::int) waiting),
  'outbox_late', (SELECT extract(epoch FROM clock_timestamp() - min(
    (SELECT min(available_at) FROM runs_outboxmessage WHERE topic = known.topic)))::float8 FROM {KNOWN_TOPICS}),
  'schedules_late', (SELECT count(*) FROM (
    SELECT FROM triggers_schedule WHERE NOT stale AND due_at < (SELECT clock_timestamp()) - %(late)s::interval
    LIMIT %(counted)s::int) late),
  'schedule_age', (SELECT extract(epoch FROM clock_timestamp() - min(due_at))::float8 FROM triggers_schedule
    WHERE due_at IS NOT NULL AND NOT stale),
  'schedules_unsettled', (SELECT count(*) FROM {EDITED} WHERE edited_at < clock_timestamp() - %(late)s::interval),
  'unsettled_age', (SELECT extract(epoch FROM clock_timestamp() - min(edited_at))::float8 FROM {EDITED}),
  'failing_sources', (SELECT coalesce(json_agg(DISTINCT subject), '[]') FROM runs_incident
    WHERE kind = 'source' AND in_a_row > 0),
  'alarms', (SELECT coalesce(json_agg(name), '[]') FROM runs_alarm WHERE ended_at IS NULL)
) AS seen
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Process:
    """A process; `started`, `seen` and `stopped` are seconds ago. `troubles`: its current problems by name, each with its
    `error` and the seconds that it has `lasted`."""

    id: str
    kind: str
    host: str
    pid: int
    version: str
    concurrency: int
    agents: list[str]
    queues: list[str]
    alive: bool
    draining: bool
    started: float
    seen: float
    stopped: float | None
    stopped_reason: str
    troubles: dict[str, Any] | None = None

    @property
    def name(self) -> str:
        return f"{self.host}:{self.pid}"


@dataclass(frozen=True, kw_only=True)
class Situation:
    """Ages are in seconds, None if nothing waits; a negative lateness lies in the future."""

    processes: list[Process]
    unseen: Mapping[str, float]
    queues: list[QueueState]
    undispatched: int = 0
    undispatched_age: float | None = None
    outbox: int = 0
    outbox_late: float | None = None
    schedules_late: int = 0
    schedule_age: float | None = None
    schedules_unsettled: int = 0
    unsettled_age: float | None = None
    failing_sources: list[str] = field(default_factory=list)
    alarms: list[str]
    found: Rows = field(default_factory=dict)
    unread: Errors = field(default_factory=dict)

    def __getitem__(self, sign: Sign[R]) -> list[R]:
        """The rows of a sign; none if it cannot be read."""
        return [sign.row(**row) for row in self.found.get(sign, ())]

    def alive(self, kind: str) -> list[Process]:
        return [process for process in self.processes if process.kind == kind and process.alive]

    @property
    def everything(self) -> QueueState:
        """The entry for all queues."""
        return next(queue for queue in self.queues if queue.name == "*")

    @property
    def versions(self) -> dict[str, int]:
        """The number of live processes of each version."""
        found: dict[str, int] = {}
        for process in self.processes:
            if process.alive:
                found[process.version] = found.get(process.version, 0) + 1
        return found


def _parameters() -> dict[str, Any]:
    return {
        **parameters(),
        "topics": known_topics(),
        "held_topics": list(ports.outside),
        "stopped": STOPPED_SHOWN,
        "counted": COUNTED,
        "late": LATE,
    }


# What pages show without a problem, and what several problems need: no sign of its own.
REST: Sign[dict[str, Any]] = Sign(name="rest", sql=LOOK, row=dict, parameters=_parameters, limit=None)


def read_situation() -> Situation:
    """The situation now, by the database's clock."""
    found, unread = read([REST, *signs()])
    if REST in unread:
        raise DatabaseError(unread[REST])
    [rest] = found[REST]
    seen = rest["seen"]
    return Situation(
        **{
            **seen,
            "found": found,
            "unread": unread,
            "processes": _each(Process, seen["processes"]),
            "queues": _each(QueueState, seen["queues"]),
        }
    )


def _each(kind: type[T], rows: list[dict[str, Any]]) -> list[T]:
    return [kind(**row) for row in rows]
