"""Work that falls due by the clock, and when the next of it does."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.db import transaction

from runs import keys
from runs.chores.rare import Rare
from runs.db.ready_runs import HINTED, SLOW
from runs.db.sql import execute, fetch, fetch_as
from runs.outbox import EVERYTHING_IS_PAUSED
from runs.ports import known_topics, ports
from runs.processes.lease import ALLOWED, patience
from runs.waits import FOR_FREE_SESSION

log = structlog.get_logger(__name__)

# Parameters in sub-SELECTs: PostgreSQL would prefer a plan for this time to one for any, and make it at each look, while the index of
# due runs has pages to spare.
# `since` is the beginning of time, or a hint: see `Since`. With a hint, it does not look for ready and lost runs. An empty outbox is
# one lookup; otherwise there is one for each topic.
LOOK = f"""
SELECT clock_timestamp() AS at,
  %(is_hinted)s::boolean OR EXISTS (SELECT FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL) AS ready,
  NOT %(is_hinted)s::boolean AND EXISTS (SELECT FROM runs_run run JOIN runs_worker worker ON worker.id = run.worker_id
          WHERE run.status = 'running' AND worker.stopped_at IS NOT NULL) AS lost,
  (SELECT min(due_at) FROM runs_run WHERE status = 'queued' AND due_at >= (SELECT %(since)s::timestamptz)) - clock_timestamp() AS due,
  (SELECT min(due_at) FROM runs_wait WHERE status = 'open' AND due_at >= (SELECT %(since)s::timestamptz)
   AND (looked_at IS NOT NULL OR kind NOT IN ('event', 'children'))) - clock_timestamp() AS wait,
  (SELECT min(coalesce(look_after, created_at + %(owed)s::interval)) FROM runs_wait
   WHERE status = 'open' AND looked_at IS NULL AND kind IN ('event', 'children')) - clock_timestamp() AS look_back,
  CASE WHEN (SELECT min(available_at) FROM runs_outboxmessage WHERE available_at >= (SELECT %(since)s::timestamptz)) IS NULL THEN '{{}}'
  ELSE (SELECT coalesce(json_object_agg(topic, due_in), '{{}}') FROM (
     SELECT topic, extract(epoch FROM (
       SELECT min(available_at) FROM runs_outboxmessage message
       WHERE message.topic = known.topic AND available_at >= (SELECT %(since)s::timestamptz)) - clock_timestamp())::float8 AS due_in
     FROM unnest((SELECT %(topics)s::text[])) AS known(topic)) first WHERE due_in IS NOT NULL) END AS outbox,
  {EVERYTHING_IS_PAUSED} AS is_paused,
  NOT %(is_hinted)s::boolean AND EXISTS (SELECT {FOR_FREE_SESSION}) AS free_session,
  least((SELECT min(created_at) FROM runs_notification WHERE planned_at IS NULL AND created_at >= (SELECT %(since)s::timestamptz)),
    (SELECT min(due_at) FROM runs_delivery WHERE status IN ('pending', 'held', 'sending') AND due_at >= (SELECT %(since)s::timestamptz)))
    - clock_timestamp() AS notifications,
  (SELECT min(CASE WHEN seen_at > clock_timestamp() + interval '1 second' THEN clock_timestamp()
     ELSE seen_at + {ALLOWED.format(kind="kind")} END)
   FROM runs_worker WHERE stopped_at IS NULL) - clock_timestamp() AS lease_expiry
"""  # noqa: S608  (our own parts)

COLUMNS = (
    "at", "ready", "lost", "due", "wait", "look_back", "outbox", "is_paused", "free_session", "notifications", "lease_expiry"
)  # fmt: skip
BESIDE = "SELECT runs.*, other.* FROM ({look}) runs CROSS JOIN ({other}) other"
BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
# The process that writes a wait looks back itself; after this time the dispatcher does, because the process may have died.
LOOK_BACK_OWED = timedelta(seconds=1)
# Runs with a slot keep their place; runs without a key need none. The clock is read once, in a sub-SELECT, so that the index leaves
# out runs that are due later.
WAKE = """
UPDATE runs_run SET ready_at = clock_timestamp(), due_at = NULL
WHERE id = ANY(ARRAY(
  SELECT id FROM runs_run
  WHERE status = 'queued' AND due_at <= (SELECT clock_timestamp()) AND (key IS NULL OR slot IS NOT NULL)
  ORDER BY due_at LIMIT %s::int FOR UPDATE SKIP LOCKED))
"""

# The other runs (a start delayed by a rate, a backoff of a key with several places) line up for a place. Not `key IS NOT NULL`: with
# it the planner may use the index by key, and read all runs that are due later.
DUE_WITHOUT_PLACE = """
SELECT id, key FROM runs_run
WHERE status = 'queued' AND due_at <= (SELECT clock_timestamp()) AND coalesce(key, '') <> '' AND slot IS NULL
ORDER BY due_at LIMIT %s::int
"""
LINE_UP = """
UPDATE runs_run SET due_at = NULL
WHERE id IN (
  SELECT id FROM runs_run
  WHERE id = ANY(%s::uuid[]) AND status = 'queued' AND due_at <= clock_timestamp() AND slot IS NULL FOR UPDATE SKIP LOCKED)
"""


Ask = Callable[..., list[Any]]  # `fetch_as`, or one that does more in the same statement


@dataclass(frozen=True, kw_only=True)
class RunTimers:
    """The work of `runs`. The timedeltas say when it is due (past: now; None: never); `inside` is by topic."""

    ready: bool
    lost: bool
    due: timedelta | None
    wait: timedelta | None
    look_back: timedelta | None
    inside: Mapping[str, timedelta]
    outside: timedelta | None
    slow: timedelta | None
    lease_expiry: timedelta | None
    notifications: timedelta | None = None  # to plan or to send
    free_session: bool = False  # a run waits for a session that no live run holds
    at: datetime = BEGINNING  # the time of this look
    outbox: Mapping[str, timedelta] = field(default_factory=dict)  # time until the next message of each known topic
    again: timedelta | None = None  # when to look from the beginning, after a look by a hint
    rare: Rare | None = None  # None: the look did not ask for it

    @property
    def next(self) -> timedelta | None:
        """When the next work of the dispatcher's own thread is due."""
        waits = (self.due, self.wait, self.look_back, *self.inside.values(), self.lease_expiry, self.again)
        return min((wait for wait in waits if wait is not None), default=None)


@dataclass
class Since:
    """The due time from which a look reads: the beginning, or after a slow look, for a second, a hint.

    While an old snapshot is open, index entries of finished work cannot be removed, and a look steps over each. New work falls
    due after the time at which it is written, so after a slow look the next ones begin at its time, or at the work that was
    overdue then. Work that such a look leaves out waits one second at most."""

    slow: float = SLOW
    at: datetime | None = None
    until: float = 0.0

    def hint(self) -> datetime | None:
        return self.at if time.monotonic() < self.until else None

    def looked(self, at: datetime, found: Iterable[timedelta | None], seconds: float) -> None:
        """Call after a look from the beginning, with its time, the due times it found, and its duration."""
        overdue = min((wait for wait in found if wait is not None), default=timedelta())
        self.at = at + min(overdue, timedelta())
        self.until = time.monotonic() + HINTED if seconds >= self.slow else 0.0


since = Since()


def parameters(hint: datetime | None = None) -> dict[str, Any]:
    """The parameters of LOOK."""
    given = {"is_hinted": hint is not None, "since": hint or BEGINNING}
    return {**patience(), **given, "owed": LOOK_BACK_OWED, "topics": known_topics()}


def everything_is_due() -> RunTimers:
    """The result used when a look fails: try all work, because some of it may succeed."""
    now, inside = timedelta(), dict.fromkeys(ports.inside, timedelta())
    times: dict[str, Any] = dict.fromkeys(
        ("due", "wait", "look_back", "outside", "slow", "notifications", "lease_expiry"), now
    )
    return RunTimers(ready=True, lost=True, free_session=True, inside=inside, rare=Rare(), **times)


def read_run_timers() -> RunTimers:
    found, _ = read_beside("SELECT", {})
    return found


def read_beside(other: str, given: Mapping[str, Any], ask: Ask = fetch_as) -> tuple[RunTimers, dict[str, Any]]:
    """The timers, and the row of another statement, whose columns have other names, in one statement."""
    hint, began = since.hint(), time.monotonic()
    [row] = ask(_row, BESIDE.format(look=LOOK, other=other), {**parameters(hint), **given})
    found = _timers_of(**{name: row.pop(name) for name in COLUMNS})
    if hint is not None:
        return replace(found, again=timedelta(seconds=since.until - time.monotonic())), row
    due = (found.due, found.wait, found.notifications, *found.outbox.values())
    since.looked(found.at, due, time.monotonic() - began)
    return found, row


def _row(**columns: Any) -> dict[str, Any]:
    return columns


def _timers_of(*, outbox: Mapping[str, float], is_paused: bool, **columns: Any) -> RunTimers:
    waits = {topic: timedelta(seconds=seconds) for topic, seconds in outbox.items()}

    def of(topics: Mapping[str, object]) -> dict[str, timedelta]:
        return {topic: waits[topic] for topic in topics if topic in waits}

    outside = None if is_paused else min(of(ports.outside).values(), default=None)
    slow = min(of(ports.slow).values(), default=None)
    return RunTimers(outbox=waits, inside=of(ports.inside), outside=outside, slow=slow, **columns)


def is_due(wait: timedelta | None) -> bool:
    return wait is not None and wait <= timedelta()


def wake_due(limit: int) -> int:
    """Make due runs ready, or let them line up for a place of their key; return how many."""
    return execute(WAKE, [limit]) + _line_up(limit)


def _line_up(limit: int) -> int:
    due = fetch(DUE_WITHOUT_PLACE, [limit])
    if not due:
        return 0
    with transaction.atomic():
        locked = keys.try_lock(key for _, key in due)
        lined_up = execute(LINE_UP, [[run for run, key in due if key in locked]])
        keys.promote(locked)
    return lined_up


class StalledKeys:
    """Searches the live keys, some at a time, for a free place that no run was given. Raising a limit is the only known cause;
    without this the runs would wait forever."""

    KEYS_A_LOOK = 500

    def __init__(self) -> None:
        self.after = ""

    def mend(self) -> int:
        """Promote the runs that wait for a free place; return how many."""
        found, self.after = keys.stalled(self.after, self.KEYS_A_LOOK)
        if not found:
            return 0
        with transaction.atomic():
            promoted = keys.promote(keys.try_lock(found))
        log.warning("keys.mended", keys=found[:10], runs=promoted)
        return promoted
