"""Failures and successes become incidents."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction

from runs.db.sql import database_now, execute, fetch_column
from runs.incidents.cause import LENGTH, OTHER, cause_of, fingerprint_of
from runs.incidents.lock import lock
from runs.incidents.tell import tell
from runs.models import Incident

log = structlog.get_logger(__name__)

MOST_CAUSES = 5  # of one thing at a time; further ones are counted together
MOST_CLOSED = 50  # newest closed incidents of a thing that may open again: strangers may choose error texts
ERROR_LENGTH = 2_000
LOGGED = 5
COVERED_AT_ONCE = 1_000  # rows of a statement
# Of these things: what fails now, what was closed so lately that it opens again, and what is muted: if it fails again, however
# much later, it is the same incident, and still muted. OFFSET 0 makes PostgreSQL look up each thing in the three partial indexes
# instead of reading all incidents. Arrays in a sub-SELECT: one plan for any number of things.
CURRENT = """
SELECT DISTINCT current.id FROM unnest((SELECT %(kinds)s::text[]), (SELECT %(subjects)s::text[])) thing (kind, subject)
CROSS JOIN LATERAL (
  SELECT id FROM runs_incident incident
  WHERE incident.kind = thing.kind AND incident.subject = thing.subject AND in_a_row > 0
  UNION ALL (
    SELECT id FROM runs_incident incident
    WHERE incident.kind = thing.kind AND incident.subject = thing.subject
      AND closed_at > (SELECT clock_timestamp()) - %(cooldown)s::interval
    ORDER BY closed_at DESC LIMIT %(most)s::int)
  UNION ALL
  SELECT id FROM runs_incident incident
  WHERE incident.kind = thing.kind AND incident.subject = thing.subject AND muted_at IS NOT NULL AND %(fails)s::bool
  OFFSET 0) current
"""
COVER = """
INSERT INTO runs_coveredrun (incident_id, run_id)
SELECT * FROM unnest(%s::bigint[], %s::uuid[])
ON CONFLICT (run_id) DO UPDATE SET incident_id = excluded.incident_id, id = excluded.id
"""
CHANGES = [
    "name", "error", "urgency", "count", "in_a_row", "last_at", "first_run_id", "last_run_id", "opened_at", "closed_at",
    "closed_by", "reopened", "told", "told_at", "tell_at", "acknowledged_at", "acknowledged_by", "acknowledged_note",
    *Incident.MUTE,
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Thing:
    """A thing that fails or succeeds. `after`: failures that open an incident; 0: never."""

    kind: Incident.Kind
    subject: str
    name: str
    agent: str = ""
    after: int = field(default=2, compare=False)
    urgency: str = field(default="normal", compare=False)

    @property
    def key(self) -> tuple[str, str]:
        return self.kind.value, self.subject


@dataclass(frozen=True, kw_only=True)
class Failed:
    """`in_all`: all failures since the last success, where they are counted elsewhere, with the times of the first and the last;
    without it, this is one more, now."""

    thing: Thing
    error: str
    run_id: UUID | None = None
    is_covered: bool = False  # the run failed, and may be requeued
    in_all: int | None = None
    first_at: datetime | None = None
    last_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Succeeded:
    """`by`: nothing succeeded; this person removed the thing."""

    thing: Thing
    by: str = ""


def note(ended: Sequence[Failed | Succeeded]) -> None:
    """Note what ended, in this order, in the caller's transaction. Calls for the same thing come one after the other."""
    things = {one.thing.key for one in ended}
    fails = any(isinstance(one, Failed) for one in ended)
    if not things or not (fails or _current(things)):
        return
    with transaction.atomic():
        lock()
        book = Book(_current(things, fails=fails), database_now())
        for one in ended:
            if isinstance(one, Failed):
                book.fail(one)
            else:
                book.succeed(one)
        book.write()
        tell()


def _current(things: Iterable[tuple[str, str]], *, fails: bool = False) -> list[int]:
    kinds, subjects = zip(*sorted(things), strict=True)
    asked = {"kinds": list(kinds), "subjects": list(subjects), "cooldown": settings.WAKEFUL_INCIDENT_COOLDOWN}
    return fetch_column(CURRENT, {**asked, "most": MOST_CLOSED, "fails": fails})


class Book:
    """The current incidents of some things, while outcomes are noted."""

    def __init__(self, ids: Sequence[int], now: datetime) -> None:
        self.now = now
        self.incidents: dict[tuple[str, str], dict[str, Incident]] = defaultdict(dict)
        self.changed: dict[int, Incident] = {}  # by identity: new ones have no id yet
        self.gone: list[Incident] = []
        self.covers: dict[UUID, Incident] = {}
        self.opened: list[Incident] = []
        self.closed: list[Incident] = []
        # Erasure may change the rows meanwhile.
        for incident in Incident.objects.select_for_update().filter(pk__in=ids).order_by("id"):
            self.incidents[incident.kind, incident.subject][incident.fingerprint] = incident

    def fail(self, failed: Failed) -> None:
        thing = failed.thing
        incident = self._incident(failed)
        times = 1 if failed.in_all is None else max(failed.in_all - incident.in_a_row, 0)
        if not times:
            return
        incident.name, incident.urgency = thing.name, thing.urgency
        incident.error = failed.error[:ERROR_LENGTH]
        incident.first_run_id = incident.first_run_id or failed.run_id
        incident.last_run_id = failed.run_id
        was_open = incident.is_open
        incident.fail(times, after=thing.after, now=self.now, cooldown=settings.WAKEFUL_INCIDENT_COOLDOWN)
        incident.last_at = failed.last_at or self.now
        if incident.is_open and not was_open:
            self.opened.append(incident)
        self.changed[id(incident)] = incident
        if failed.run_id and failed.is_covered:
            self.covers[failed.run_id] = incident

    def succeed(self, succeeded: Succeeded) -> None:
        of_thing = self.incidents[succeeded.thing.key]
        for incident in [one for one in of_thing.values() if one.in_a_row]:
            if incident.status == "noticed":
                del of_thing[incident.fingerprint]
                self._drop(incident)
                continue
            if incident.is_open:
                self.closed.append(incident)
            incident.succeed(now=self.now, cooldown=settings.WAKEFUL_INCIDENT_COOLDOWN, by=succeeded.by)
            self.changed[id(incident)] = incident

    def _incident(self, failed: Failed) -> Incident:
        thing, of_thing = failed.thing, self.incidents[failed.thing.key]
        cause = cause_of(failed.error)
        if (known := of_thing.get(fingerprint_of(cause))) is None:
            if sum(one.in_a_row > 0 for one in of_thing.values()) >= MOST_CAUSES:
                cause = OTHER
            fingerprint = fingerprint_of(cause)
            known = of_thing.get(fingerprint) or Incident(
                kind=thing.kind,
                subject=thing.subject,
                agent=thing.agent,
                cause=cause[:LENGTH],
                fingerprint=fingerprint,
                first_at=failed.first_at or self.now,
            )
            of_thing[fingerprint] = known
        return known

    def _drop(self, incident: Incident) -> None:
        self.changed.pop(id(incident), None)
        self.covers = {run: one for run, one in self.covers.items() if one is not incident}
        self.gone.append(incident)

    def write(self) -> None:
        Incident.objects.filter(pk__in=[one.pk for one in self.gone if one.pk]).delete()
        changed = list(self.changed.values())
        Incident.objects.bulk_create([one for one in changed if one.pk is None])
        known = [one for one in changed if one.pk is not None]
        Incident.objects.bulk_create(known, update_conflicts=True, unique_fields=["id"], update_fields=CHANGES)
        self._log()
        covers = list(self.covers.items())
        for start in range(0, len(covers), COVERED_AT_ONCE):
            part = covers[start : start + COVERED_AT_ONCE]
            execute(COVER, [[incident.pk for _, incident in part], [run for run, _ in part]])

    def _log(self) -> None:
        """A line for many: thousands may open at once."""
        for what, incidents in (("incidents.opened", self.opened), ("incidents.closed", self.closed)):
            if incidents:
                first = [f"{one.kind} {one.name}: {one.cause}" for one in incidents[:LOGGED]]
                log.warning(what, count=len(incidents), first=first)
