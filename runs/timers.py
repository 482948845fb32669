"""What falls due by the clock alone, and when the next of it does."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import structlog
from django.db import transaction

from runs import keys
from runs.db.ready import HINTED, SLOW
from runs.db.sql import execute, fetch
from runs.outbox import EVERYTHING_IS_PAUSED
from runs.ports import known_topics, ports
from runs.processes.lease import patience

log = structlog.get_logger(__name__)

# `since` is the beginning of time, or a hint: see `Since`. With a hint, ready and lost runs are not looked for.
LOOK = f"""
SELECT clock_timestamp(),
  %(is_hinted)s::boolean OR EXISTS (SELECT FROM runs_run WHERE status = 'queued' AND ready_at IS NOT NULL),
  NOT %(is_hinted)s::boolean AND EXISTS (SELECT FROM runs_run run JOIN runs_worker worker ON worker.id = run.worker_id
          WHERE run.status = 'running' AND worker.stopped_at IS NOT NULL),
  (SELECT min(due_at) FROM runs_run WHERE status = 'queued' AND due_at >= %(since)s::timestamptz) - clock_timestamp(),
  (SELECT min(due_at) FROM runs_wait WHERE status = 'open' AND due_at >= %(since)s::timestamptz
   AND (looked_at IS NOT NULL OR kind NOT IN ('event', 'children'))) - clock_timestamp(),
  (SELECT min(coalesce(look_after, created_at + %(owed)s::interval)) FROM runs_wait
   WHERE status = 'open' AND looked_at IS NULL AND kind IN ('event', 'children')) - clock_timestamp(),
  (SELECT coalesce(json_object_agg(topic, due_in), '{{}}') FROM (
     SELECT topic, extract(epoch FROM (
       SELECT min(available_at) FROM runs_outboxmessage message
       WHERE message.topic = known.topic AND available_at >= %(since)s::timestamptz) - clock_timestamp())::float8 AS due_in
     FROM unnest(%(topics)s::text[]) AS known(topic)) first WHERE due_in IS NOT NULL),
  {EVERYTHING_IS_PAUSED},
  (SELECT min(CASE WHEN seen_at > clock_timestamp() + interval '1 second' THEN clock_timestamp()
     ELSE seen_at + CASE kind WHEN 'worker' THEN %(lease)s::interval ELSE %(others)s::interval END END)
   FROM runs_worker WHERE stopped_at IS NULL) - clock_timestamp()
"""  # noqa: S608  (our own parts)

BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
# Whoever registers a wait looks back itself, at once; it may have died over it.
LOOK_BACK_OWED = timedelta(seconds=1)
# A backoff with a slot keeps its place; one without a key needs none. The clock is read once, in a query of its own:
# otherwise it would be asked of every run that is due some day, and none of them left out by the index.
WAKE = """
UPDATE runs_run SET ready_at = clock_timestamp(), due_at = NULL
WHERE id IN (
  SELECT id FROM runs_run
  WHERE status = 'queued' AND due_at <= (SELECT clock_timestamp()) AND (key IS NULL OR slot IS NOT NULL)
  ORDER BY due_at LIMIT %s::int FOR UPDATE SKIP LOCKED)
"""

# The others (a start that a rate put off, a backoff where the key has several places) line up for one. Not `key IS NOT NULL`:
# that would let the planner take the index by key, and read all that are due later.
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


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look at all that `runs` may have to do; the timedeltas say when (past: now), None never. `inside` is by topic."""

    ready: bool
    lost: bool
    due: timedelta | None
    wait: timedelta | None
    look_back: timedelta | None
    inside: Mapping[str, timedelta]
    outside: timedelta | None
    slow: timedelta | None
    lease_expiry: timedelta | None
    again: timedelta | None = None  # when to look from the beginning, after a look by a hint

    @property
    def next(self) -> timedelta | None:
        """Of what the dispatcher does itself."""
        waits = (self.due, self.wait, self.look_back, *self.inside.values(), self.lease_expiry, self.again)
        return min((wait for wait in waits if wait is not None), default=None)


@dataclass
class Since:
    """From when on a look reads what falls due: all of it once a second, and where looks are quick always.

    While an old snapshot is open, the entries of what is done cannot be removed from the indexes, and a look steps over each.
    What is entered falls due after the time it is entered at, so after a slow look the next ones begin at the time of that,
    or at what was overdue then. It is a hint only: what a look by it leaves out waits a second at most."""

    slow: float = SLOW
    at: datetime | None = None
    until: float = 0.0

    def hint(self) -> datetime | None:
        return self.at if time.monotonic() < self.until else None

    def looked(self, at: datetime, found: Iterable[timedelta | None], seconds: float) -> None:
        """After a look from the beginning, at that time, which found this to be due."""
        overdue = min((wait for wait in found if wait is not None), default=timedelta())
        self.at, self.until = (
            at + min(overdue, timedelta()),
            (time.monotonic() + HINTED if seconds >= self.slow else 0.0),
        )


since = Since()


def parameters(hint: datetime | None = None) -> dict[str, Any]:
    """What LOOK needs."""
    given = {"is_hinted": hint is not None, "since": hint or BEGINNING}
    return {**patience(), **given, "owed": LOOK_BACK_OWED, "topics": known_topics()}


def everything_is_due() -> Look:
    """Where the look itself fails, each is tried: some may still work."""
    now = timedelta()
    return Look(
        ready=True,
        lost=True,
        due=now,
        wait=now,
        look_back=now,
        inside=dict.fromkeys(ports.inside, now),
        outside=now,
        slow=now,
        lease_expiry=now,
    )


def look() -> Look:
    hint, began = since.hint(), time.monotonic()
    [(at, ready, lost, due, wait, look_back, outbox, paused, lease_expiry)] = fetch(LOOK, parameters(hint))
    waits = {topic: timedelta(seconds=seconds) for topic, seconds in outbox.items()}
    if hint is None:
        since.looked(at, (due, wait, *waits.values()), time.monotonic() - began)

    def of(topics: Mapping[str, object]) -> dict[str, timedelta]:
        return {topic: waits[topic] for topic in topics if topic in waits}

    return Look(
        ready=ready,
        lost=lost,
        due=due,
        wait=wait,
        look_back=look_back,
        inside=of(ports.inside),
        outside=None if paused else min(of(ports.outside).values(), default=None),
        slow=min(of(ports.slow).values(), default=None),
        lease_expiry=lease_expiry,
        again=timedelta(seconds=since.until - time.monotonic()) if hint else None,
    )


def is_due(wait: timedelta | None) -> bool:
    return wait is not None and wait <= timedelta()


def wake_due(limit: int) -> int:
    """Make the runs ready whose time has come, or let them line up for a place of their key; how many."""
    return execute(WAKE, [limit]) + _line_up(limit)


def _line_up(limit: int) -> int:
    due = fetch(DUE_WITHOUT_PLACE, [limit])
    if not due:
        return 0
    with transaction.atomic():
        locked = keys.try_lock(key for _, key in due)
        lined_up = execute(LINE_UP, [[id for id, key in due if key in locked]])
        keys.promote(locked)
    return lined_up


class StalledKeys:
    """A look over the live keys, some each time, for one with a free place and a run that waits for it. None is known to
    come about but by raising a limit; one that did would otherwise wait for ever."""

    KEYS_A_LOOK = 500

    def __init__(self) -> None:
        self.after = ""

    def mend(self) -> int:
        """Promote the runs that wait for nothing; how many."""
        found, self.after = keys.stalled(self.after, self.KEYS_A_LOOK)
        if not found:
            return 0
        with transaction.atomic():
            promoted = keys.promote(keys.try_lock(found))
        log.warning("keys.mended", keys=found[:10], runs=promoted)
        return promoted
