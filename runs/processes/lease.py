"""Worker rows: one per process incarnation, renewed while the process lives. Only the database's clock counts."""

import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any
from uuid import UUID, uuid4

from django.conf import settings
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from agents.kernel.durations import in_words
from runs.db.nudge import nudge_dispatcher
from runs.db.ready_runs import IS_STOPPED
from runs.db.sql import database_now, fetch, fetch_as
from runs.models import Worker
from runs.transitions.outcome import Ticket


def wakeful_version() -> str:
    if settings.WAKEFUL_VERSION:
        return str(settings.WAKEFUL_VERSION)
    try:
        return version("wakeful")
    except PackageNotFoundError:
        return "source"


def open_row(
    kind: Worker.Kind,
    *,
    id: UUID | None = None,
    concurrency: int = 0,
    agents: Sequence[str] = (),
    durable_agents: Sequence[str] = (),
    queues: Sequence[str] = (),
) -> UUID:
    """Begin an incarnation of this process."""
    row = Worker.objects.create(
        id=id or uuid4(),
        kind=kind,
        host=socket.gethostname(),
        pid=os.getpid(),
        version=wakeful_version(),
        concurrency=concurrency,
        agents=list(agents),
        durable_agents=list(durable_agents),
        queues=list(queues),
    )
    nudge_dispatcher()
    return row.id


def know_agents(worker_id: UUID, *, agents: Sequence[str], durable_agents: Sequence[str]) -> None:
    """Prompt agents came or went: from now on the worker may claim runs of these."""
    Worker.objects.filter(id=worker_id, stopped_at=None).update(agents=agents, durable_agents=durable_agents)
    nudge_dispatcher()


def drain(worker_id: UUID) -> None:
    """Let a worker claim no more runs."""
    Worker.objects.filter(id=worker_id, draining_at=None).update(draining_at=Now())


def close_row(worker_id: UUID, reason: str) -> None:
    """End an incarnation; its running runs count as lost, and the next rescue hands them on."""
    Worker.objects.filter(id=worker_id, stopped_at=None).update(stopped_at=Now(), stopped_reason=reason)
    nudge_dispatcher()


RENEW = """
WITH renewed AS (
  UPDATE runs_worker SET seen_at = clock_timestamp(), troubles = %s::jsonb WHERE id = %s::uuid AND stopped_at IS NULL
  RETURNING id, extract(epoch FROM clock_timestamp())::float8 AS now
)
SELECT renewed.now, run.id AS run_id, run.epoch, run.claim, run.key, run.slot, run.pid,
  run.deadline_at < clock_timestamp() AS overdue, run.cancel_requested_at IS NOT NULL AS cancelled,
  {is_stopped} AS stopped
FROM renewed LEFT JOIN runs_run run ON run.worker_id = renewed.id AND run.status = 'running'
""".replace("{is_stopped}", IS_STOPPED.format(agent="run.agent"))


# Kinds of processes that own something (runs, sources): another process takes it over when their lease has ended.
OWNERS = (Worker.Kind.WORKER, Worker.Kind.SOURCES)
# Any other process renews at its safety look, and may miss this many.
UNSEEN_LOOKS = 3
# The time allowed for a row of `runs_worker`; its parameters are those of `patience()`.
ALLOWED = "CASE WHEN {kind} IN ('worker', 'sources') THEN %(lease)s::interval ELSE %(others)s::interval END"


def patience() -> dict[str, timedelta]:
    """The time after which the row of an unseen process is closed: of one that owns something (`lease`) or another
    (`others`)."""
    return {"lease": settings.WAKEFUL_LEASE, "others": settings.WAKEFUL_SAFETY_LOOK * UNSEEN_LOOKS}


@dataclass(frozen=True, kw_only=True)
class Running:
    """A run that a child of this worker executes, according to the database."""

    ticket: Ticket
    pid: int
    overdue: bool
    cancelled: bool
    stopped: bool  # its agent is


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A problem of a process, and for how many seconds it has lasted."""

    lasted: float
    error: str

    def as_json(self) -> dict[str, str]:
        return {"since": (database_now() - timedelta(seconds=self.lasted)).isoformat(), "error": self.error}


SAY = """
UPDATE runs_worker SET seen_at = clock_timestamp(), troubles = %s::jsonb WHERE id = %s::uuid AND stopped_at IS NULL
RETURNING extract(epoch FROM clock_timestamp())::float8
"""
CLOCKS_APART = timedelta(seconds=5)
NO_TROUBLES: Mapping[str, Trouble] = {}


class Clock:
    """The difference between this host's clock and the database's. Wakeful makes no decision by the host's clock, but
    uses it to order the ids of accepted events, to check the time in signatures, and as the time that agents see.
    """

    def __init__(self) -> None:
        self.apart = 0.0  # seconds; positive: ahead
        self.since = 0.0

    def compare(self, before: float, database: float, after: float) -> None:
        """Compare the database's time, read between two readings of this clock, so that a slow answer does not count."""
        was_wrong = self.is_wrong
        self.apart = (
            0.0 if before <= database <= after else (before - database if database < before else after - database)
        )
        if self.is_wrong and not was_wrong:
            self.since = time.monotonic()

    @property
    def is_wrong(self) -> bool:
        return abs(self.apart) > CLOCKS_APART.total_seconds()

    @property
    def troubles(self) -> dict[str, Trouble]:
        if not self.is_wrong:
            return {}
        apart = in_words(timedelta(seconds=round(abs(self.apart))))
        error = f"{apart} {'ahead of' if self.apart > 0 else 'behind'}"
        return {"clock": Trouble(lasted=time.monotonic() - self.since, error=error)}


def renew(worker_id: UUID, clock: Clock) -> list[Running] | None:
    """Renew the lease and read what the worker's children run; None: the row is closed, and its runs were handed on."""
    before = time.time()
    found = fetch_as(_renewed, RENEW, [_as_json(clock.troubles), worker_id])
    if not found:
        return None
    clock.compare(before, found[0][0], time.time())
    return [running for _, running in found if running]


def _renewed(
    *, now: float, run_id: UUID | None, pid: int, overdue: bool, cancelled: bool, stopped: bool, **of_claim: Any
) -> tuple[float, Running | None]:
    """The time of the renewal, and a run of the worker, if any."""
    if run_id is None:
        return now, None
    ticket = Ticket(run_id=run_id, **of_claim)
    return now, Running(ticket=ticket, pid=pid, overdue=overdue, cancelled=cancelled, stopped=stopped)


def _as_json(troubles: Mapping[str, Trouble]) -> Jsonb | None:
    return Jsonb({name: trouble.as_json() for name, trouble in troubles.items()}) if troubles else None


class Presence:
    """The row of a process that is not a worker, renewed at its safety look, or with its lease if it owns sources."""

    def __init__(self, kind: Worker.Kind) -> None:
        self.kind = kind
        self.every = settings.WAKEFUL_LEASE_RENEW if kind in OWNERS else settings.WAKEFUL_SAFETY_LOOK
        self.row: UUID | None = None
        self.renewed_at = float("-inf")
        self.told: Mapping[str, str] = {}
        self.clock = Clock()

    def renew(self, troubles: Mapping[str, Trouble] = NO_TROUBLES) -> None:
        """Renew the row when it is time, or when the troubles of this process change; open a new row if it was closed."""
        troubles = {**troubles, **self.clock.troubles}
        telling = {name: trouble.error for name, trouble in troubles.items()}
        is_early = time.monotonic() - self.renewed_at < self.every.total_seconds() * 0.9
        if is_early and telling == self.told:
            return
        said = _as_json(troubles)
        if self.row is None or not self._say(self.row, said):
            self.row = open_row(self.kind)
            self._say(self.row, said)
        self.renewed_at, self.told = time.monotonic(), telling

    def _say(self, row: UUID, troubles: Jsonb | None) -> bool:
        """False: the row is closed."""
        before = time.time()
        renewed = fetch(SAY, [troubles, row])
        for (now,) in renewed:
            self.clock.compare(before, now, time.time())
        return bool(renewed)

    def close(self) -> None:
        if self.row is not None:
            close_row(self.row, "stopped")
            self.row = None
