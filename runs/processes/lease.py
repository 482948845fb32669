"""Worker rows: one per process incarnation, renewed while the process lives. Only the database's clock counts.

A row says until when its process may be unseen: for WAKEFUL_LEASE if it owns something that another process takes over then, for
some safety looks if it does not. The session that renews a row holds an advisory lock of its own, so a process that is killed is
known to be dead as soon as PostgreSQL has lost its session; one that is frozen or cut off, when its row expires.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import Any, TypeVar
from uuid import UUID, uuid4

from django.conf import settings
from django.db import connection
from django.db.models.functions import Now
from psycopg.types.json import Jsonb

from agents.kernel.durations import in_words
from agents.prompt_agents import catalog
from runs.db import host_clock
from runs.db.nudge import nudge_dispatcher
from runs.db.ready_runs import IS_STOPPED
from runs.db.sql import database_now, fetch, fetch_as
from runs.models import Worker
from runs.processes.pulse import Pulse
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
        host=settings.WAKEFUL_HOST_NAME,
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


# Kinds of processes that may own something (runs, sources, requests to models): another process takes it over when their lease has ended.
OWNERS = (Worker.Kind.WORKER, Worker.Kind.SOURCES, Worker.Kind.CALLER)
# A process that owns nothing renews once in so many safety looks, and may be unseen for so many.
REST_LOOKS, UNSEEN_LOOKS = 2, 4
# The same for rows without `expires_at`, of versions before it.
EARLIER_LOOKS = 3
# A session that was cut off is replaced sooner than this share of the time between two renewals of a lease after the last one.
GONE_AFTER = 1.5

# Parameters of all of these are those of `patience()`. Columns are of the row of `runs_worker` that is at hand.
EARLIER = "CASE WHEN {kind} IN ('worker', 'sources') THEN %(lease)s::interval ELSE %(others)s::interval END"
# The time from its last renewal after which a row must be looked at: sooner if its process owns something.
ALLOWED = f"""(CASE WHEN expires_at IS NULL THEN {EARLIER}
     WHEN expires_at - seen_at > %(lease)s::interval THEN expires_at - seen_at
     ELSE least(%(gone)s::interval, expires_at - seen_at) END)"""
EXPIRES = f"coalesce(expires_at, seen_at + {EARLIER.format(kind='kind')})"

SPACE = 0x57B0  # namespace of the two-integer advisory locks
HOLD = f"pg_try_advisory_lock_shared({SPACE}, hashtext(id::text))"
# No session holds the lock of the row. Just after a restart of the server no process has connected yet.
IS_GONE = f"""(expires_at IS NOT NULL AND seen_at < clock_timestamp() - %(gone)s::interval
  AND clock_timestamp() > pg_postmaster_start_time() + %(lease)s::interval
  AND NOT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND classid = {SPACE} AND objsubid = 2
    AND objid::bigint = hashtext(id::text) & 4294967295
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())))"""  # noqa: S608  (our own parts)
# Earlier versions take the runs of a worker that is unseen for its lease.
MAY_REST = """NOT EXISTS (SELECT FROM runs_worker earlier
    WHERE id <> %(id)s::uuid AND stopped_at IS NULL AND expires_at IS NULL AND seen_at > clock_timestamp() - %(others)s::interval)"""
NOW = "extract(epoch FROM clock_timestamp())::float8"
# One instant for both: ALLOWED takes their difference.
SEEN = "seen_at = statement_timestamp(), expires_at = statement_timestamp() + %(allowed)s::interval, troubles = %(troubles)s::jsonb"


# Seconds that a pass of any loop takes at most: its statements are ended at 30 s. A process that is frozen has long lost by its row what
# it owned, so a restart may be late.
SLOWEST = 120.0


def pulse_of(kind: Worker.Kind) -> Pulse:
    return Pulse(kind.value, limit=max(SLOWEST, 3 * rest().total_seconds()))


def patience() -> dict[str, timedelta]:
    """The parameters of the statements that judge rows."""
    return {
        "lease": settings.WAKEFUL_LEASE,
        "others": settings.WAKEFUL_SAFETY_LOOK * EARLIER_LOOKS,
        "gone": settings.WAKEFUL_LEASE_RENEW * GONE_AFTER,
    }


def rest() -> timedelta:
    """The time between two renewals of a process that owns nothing."""
    looks: timedelta = settings.WAKEFUL_SAFETY_LOOK * REST_LOOKS
    return looks


def allowed(*, owns: bool) -> timedelta:
    """The time for which a process may be unseen after a renewal: longer than the lease, by which ALLOWED knows it, if it owns
    nothing."""
    lease: timedelta = settings.WAKEFUL_LEASE
    return lease if owns else max(settings.WAKEFUL_SAFETY_LOOK * UNSEEN_LOOKS, lease + settings.WAKEFUL_LEASE_RENEW)


RENEW = f"""
WITH renewed AS (
  UPDATE runs_worker SET {SEEN} WHERE id = %(id)s::uuid AND stopped_at IS NULL
  RETURNING id, {NOW} AS now, {HOLD} AS is_held
)
SELECT renewed.now, {MAY_REST} AS may_rest, {catalog.NEWEST} AS prompt_agents,
  run.id AS run_id, run.epoch, run.claim, run.key, run.slot, run.pid,
  run.deadline_at < clock_timestamp() AS overdue, run.cancel_requested_at IS NOT NULL AS cancelled,
  {IS_STOPPED.format(agent="run.agent")} AS stopped
FROM renewed LEFT JOIN runs_run run ON run.worker_id = renewed.id AND run.status = 'running'
"""  # noqa: S608  (our own parts)


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


SAY = f"""
UPDATE runs_worker SET {SEEN} WHERE id = %(id)s::uuid AND stopped_at IS NULL
RETURNING {NOW} AS now, {MAY_REST} AS may_rest, {HOLD} AS is_held
"""  # noqa: S608  (our own parts)
# The rows of a statement, each with the answer of a renewal before it; one row if it has none.
SAY_AND_ASK = """
WITH renewed AS ({say})
SELECT (SELECT now FROM renewed) AS renewed_now, (SELECT may_rest FROM renewed) AS renewed_may_rest, asked.*
FROM (VALUES (1)) AS one LEFT JOIN (SELECT true AS is_asked, statement.* FROM ({statement}) statement) asked ON true
"""
CLOCKS_APART = timedelta(seconds=5)
NO_TROUBLES: Mapping[str, Trouble] = {}
NO_PARAMETERS: Mapping[str, Any] = {}
T = TypeVar("T")


class Clock:
    """The difference between this host's clock and the database's. Wakeful makes no decision by the host's clock, but
    uses it to order the ids of accepted events, and as the time that agents see.
    """

    def __init__(self) -> None:
        self.apart = 0.0  # seconds; positive: ahead
        self.since = 0.0

    def compare(self, before: float, database: float, after: float) -> None:
        """Compare the database's time, read between two readings of this clock, so that a slow answer does not count."""
        if after < before:  # the clock was set back meanwhile: it does not measure how long the answer took
            return
        host_clock.note(database, took=after - before)
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


@dataclass(frozen=True, kw_only=True)
class Renewed:
    """The answer to a worker's renewal."""

    may_rest: bool  # no process of an earlier version is alive
    prompt_agents: str  # changes with them
    running: list[Running]


def renew(worker_id: UUID, clock: Clock, *, owns: bool = True) -> Renewed | None:
    """Renew the lease and read what the worker's children run; None: the row is closed, and its runs were handed on. `owns`: it
    may own runs."""
    before = time.time()
    names = {"id": worker_id, "allowed": allowed(owns=owns), "troubles": _as_json(clock.troubles)}
    found = fetch_as(_renewed, RENEW, {**patience(), **names})
    if not found:
        return None
    now, may_rest, prompt_agents, _ = found[0]
    clock.compare(before, now, time.time())
    running = [running for *_, running in found if running]
    return Renewed(may_rest=may_rest, prompt_agents=prompt_agents or "", running=running)


def _renewed(
    *,
    now: float,
    may_rest: bool,
    prompt_agents: str | None,
    run_id: UUID | None,
    pid: int,
    overdue: bool,
    cancelled: bool,
    stopped: bool,
    **of_claim: Any,
) -> tuple[float, bool, str | None, Running | None]:
    """What the renewal says in each row, and a run of the worker, if any."""
    running = None
    if run_id is not None:
        ticket = Ticket(run_id=run_id, **of_claim)
        running = Running(ticket=ticket, pid=pid, overdue=overdue, cancelled=cancelled, stopped=stopped)
    return now, may_rest, prompt_agents, running


def _as_json(troubles: Mapping[str, Trouble]) -> Jsonb | None:
    return Jsonb({name: trouble.as_json() for name, trouble in troubles.items()}) if troubles else None


class Presence:
    """The row of a process that is not a worker. It is renewed once in REST_LOOKS safety looks, or with its lease if the process
    owns something."""

    def __init__(self, kind: Worker.Kind) -> None:
        self.kind = kind
        self.owns = kind in OWNERS  # until it says otherwise
        self.may_rest = False
        self.has_rested = False  # by its last renewal
        self.session: Any = None  # that renewed it, and holds its lock
        self.row: UUID | None = None
        self.renewed_at = float("-inf")
        self.told: Mapping[str, str] = {}
        self.clock = Clock()

    @property
    def rests(self) -> bool:
        """Owns nothing, and no earlier version is alive that would close the row of one of the OWNERS."""
        return not self.owns and (self.may_rest or self.kind not in OWNERS)

    @property
    def every(self) -> timedelta:
        """The time until the next renewal."""
        pace: timedelta = rest() if self.rests and self.has_rested else settings.WAKEFUL_LEASE_RENEW
        return pace

    def renew(self, troubles: Mapping[str, Trouble] = NO_TROUBLES) -> None:
        """Renew the row when it is time, in a new session, or when the troubles of this process change; open a new row if it was
        closed."""
        if self._is_due(troubles):
            self._renew_at_once(troubles)

    def own(self) -> None:
        """From now on the row expires with the lease. Call it before the process takes what it owns."""
        self.owns = True
        if self.has_rested:
            self._renew_at_once(NO_TROUBLES)

    def ask(
        self,
        make: Callable[..., T],
        statement: str,
        parameters: Mapping[str, Any] = NO_PARAMETERS,
        troubles: Mapping[str, Trouble] = NO_TROUBLES,
    ) -> list[T]:
        """What `fetch_as` returns; when it is time to renew the row, in the same statement."""
        if self.row is None or not self._is_due(troubles):
            self.renew(troubles)
            return fetch_as(make, statement, parameters)
        began, before = time.monotonic(), time.time()
        both = SAY_AND_ASK.format(say=SAY, statement=statement)
        rows: list[dict[str, Any]] = fetch_as(dict, both, {**patience(), **self._names(troubles), **parameters})
        answers = {(row.pop("renewed_now"), row.pop("renewed_may_rest")) for row in rows}
        self._renewed(began, before, answers, troubles)
        return [make(**row) for row in rows if row.pop("is_asked")]

    def _is_due(self, troubles: Mapping[str, Trouble]) -> bool:
        is_early = time.monotonic() - self.renewed_at < self.every.total_seconds() * 0.9
        return not is_early or self.session is not connection.connection or self._told(troubles) != self.told

    def _told(self, troubles: Mapping[str, Trouble]) -> Mapping[str, str]:
        return {name: trouble.error for name, trouble in {**troubles, **self.clock.troubles}.items()}

    def _names(self, troubles: Mapping[str, Trouble]) -> dict[str, Any]:
        said = _as_json({**troubles, **self.clock.troubles})
        self.has_rested = self.rests
        return {"id": self.row, "allowed": allowed(owns=not self.has_rested), "troubles": said}

    def _renew_at_once(self, troubles: Mapping[str, Trouble]) -> None:
        if self.row is None:
            self.row = open_row(self.kind)
        began, before = time.monotonic(), time.time()
        answers = {(now, may_rest) for now, may_rest, _ in fetch(SAY, {**patience(), **self._names(troubles)})}
        self._renewed(began, before, answers, troubles)

    def _renewed(
        self,
        began: float,
        before: float,
        answers: set[tuple[float | None, bool | None]],
        troubles: Mapping[str, Trouble],
    ) -> None:
        [(now, may_rest)] = answers or {(None, None)}
        if now is None:  # another process has closed the row
            self.row = None
            self._renew_at_once(troubles)
            return
        told = self._told(troubles)
        self.clock.compare(before, now, time.time())
        self.renewed_at, self.told, self.may_rest = began, told, bool(may_rest)
        self.session = connection.connection

    def close(self) -> None:
        if self.row is not None:
            close_row(self.row, "stopped")
            self.row = None
