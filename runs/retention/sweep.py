"""Delete old rows in batches of 1,000 without blocking other work.

A *walk* goes over a table whose ids are ordered by time, oldest first. Each batch is a range of the primary key and a transaction; a
Sweep row records its progress. So a walk costs as much as the rows that it reads, not the table.

1. It skips a row that is locked elsewhere or still needed. To remove such rows later, a walk starts again from the oldest row
   every AFRESH.
2. It locks the rows first, and judges them in a new statement: a process that needed a row earlier (a replay) had locked it, and its
   change is visible; a later one waits, and then finds the row gone.
3. It locks the Sweep row as well, so that several prunes at the same time take turns, batch by batch.
4. The database's clock decides what is old.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Protocol
from uuid import UUID

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from agents.kernel.ids import first_id_at
from runs.db.sql import database_now, execute, fetch, fetch_column
from runs.failpoints import failpoint
from runs.models import NIL, Sweep
from runs.retention.removal import REMOVING

BATCH = 1_000  # rows of one transaction
AFRESH = timedelta(days=7)
# Pruning can wait, and must not make others wait. Without enable_seqscan=off the planner reads a whole table for a thousand ids. Only
# retention may delete entries of the audit log: REMOVING permits it to their database trigger.
MANNERS = f"""
SELECT set_config('lock_timeout', '2s', true), set_config('statement_timeout', '60s', true),
       set_config('enable_seqscan', 'off', true), {REMOVING}
"""
RANGE = "SELECT id FROM {table} WHERE id > %s::uuid AND id <= %s::uuid ORDER BY id LIMIT %s::int"
LOCK = "SELECT id FROM {table} WHERE id = ANY(%s::uuid[]) ORDER BY id FOR UPDATE SKIP LOCKED"
DELETE_OLDEST = """
WITH oldest AS (SELECT id, {at} AS at FROM {table} ORDER BY id LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED)
DELETE FROM {table} USING oldest WHERE {table}.id = oldest.id AND oldest.at < clock_timestamp() - %(keep)s::interval
"""
COUNT_OLDEST = "SELECT count(*) FROM {table} WHERE {at} < clock_timestamp() - %(keep)s::interval"
DELETE_FEW = """
DELETE FROM {table} WHERE {key} = ANY(ARRAY(
  SELECT {key} FROM {table} WHERE {which} LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED))
"""
COUNT_FEW = "SELECT count(*) FROM {table} WHERE {which}"

Judge = Callable[[Sequence[UUID], datetime], list[UUID]]
Portion = Callable[[Sequence[UUID]], Sequence[UUID]]
Remove = Callable[[Sequence[UUID]], object]


@dataclass(frozen=True, kw_only=True)
class Removed:
    """The number of rows that a batch removed, and whether another batch would find more."""

    rows: int
    more: bool


class Step(Protocol):
    """A kind of rows or payloads that retention removes."""

    @property
    def name(self) -> str: ...

    def batch(self, limit: int = BATCH) -> Removed:
        """Remove the next ones, in a transaction of its own."""

    def count(self) -> int:
        """The number of rows that a sweep would remove; changes nothing."""


@dataclass(frozen=True, kw_only=True)
class Walk:
    """A walk over a table of time-ordered UUIDs. `judge` returns the rows that may be removed, given a cutoff; `foresee` those
    that could be after the walks before this one; `portion` the first of them that one transaction can remove, at least one.
    The walk stays `lag` behind the cutoff, to read few rows that are not ready, and never overtakes the walk `after`."""

    name: str
    table: str
    keep: timedelta
    judge: Judge
    remove: Remove
    foresee: Judge | None = None
    portion: Portion | None = None
    lag: timedelta = timedelta()
    after: str = ""

    def batch(self, limit: int = BATCH) -> Removed:
        cutoff = database_now() - self.keep
        Sweep.objects.get_or_create(name=self.name)
        with transaction.atomic():
            fetch(MANNERS)
            position = Sweep.objects.select_for_update().get(name=self.name).position
            end = max(position, self._end(cutoff))
            ids = self._range(position, end, limit)
            going = self._lock_and_judge(ids, cutoff)
            more = len(ids) == limit
            if going and self.portion and len(part := self.portion(going)) < len(going):
                ids, going, more = ids[: ids.index(part[-1]) + 1], list(part), True
            if going:
                self.remove(going)
            Sweep.objects.filter(name=self.name).update(
                position=ids[-1] if more else end, completed_at=F("completed_at") if more else Now()
            )
            failpoint("before_prune_commit")
        return Removed(rows=len(going), more=more)

    def count(self) -> int:
        cutoff = database_now() - self.keep
        judge, end = self.foresee or self.judge, first_id_at(cutoff - self.lag)
        total, position = 0, UUID(NIL)
        while position < end:
            with transaction.atomic():
                fetch(MANNERS)
                ids = self._range(position, end, BATCH)
                total += len(judge(ids, cutoff)) if ids else 0
            position = ids[-1] if ids else end
        return total

    def _end(self, cutoff: datetime) -> UUID:
        end = first_id_at(cutoff - self.lag)
        if not self.after:
            return end
        reached = Sweep.objects.filter(name=self.after).values_list("position", flat=True).first()
        return min(end, reached or UUID(NIL))

    def _range(self, position: UUID, end: UUID, limit: int) -> list[UUID]:
        return fetch_column(RANGE.format(table=self.table), [position, end, limit])

    def _lock_and_judge(self, ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
        locked = fetch_column(LOCK.format(table=self.table), [ids]) if ids else []
        return self.judge(locked, cutoff) if locked else []


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """Deletes rows by a statement with the parameters `%(keep)s` and `%(limit)s`; `which` counts them, given `%(keep)s`."""

    name: str
    keep: timedelta
    delete: str
    which: str

    def batch(self, limit: int = BATCH) -> Removed:
        with transaction.atomic():
            fetch(MANNERS)
            rows = execute(self.delete, {"keep": self.keep, "limit": limit})
        return Removed(rows=rows, more=rows == limit)

    def count(self) -> int:
        [(rows,)] = fetch(self.which, {"keep": self.keep})
        return int(rows)


def oldest(name: str, table: str, *, at: str, keep: timedelta) -> Deletion:
    """Delete from the first rows of a table whose ids grow with time, those older than `keep`."""
    names = {"table": table, "at": at}
    return Deletion(name=name, keep=keep, delete=DELETE_OLDEST.format(**names), which=COUNT_OLDEST.format(**names))


def few(name: str, table: str, *, key: str, which: str, keep: timedelta) -> Deletion:
    """Delete the rows that match a condition on `%(keep)s`, from a small table or by an index."""
    names = {"table": table, "key": key, "which": which}
    return Deletion(name=name, keep=keep, delete=DELETE_FEW.format(**names), which=COUNT_FEW.format(**names))


def set_out_afresh(*, every: timedelta = AFRESH) -> None:
    """Start walks again from the oldest row if they are complete and began at least `every` ago."""
    Sweep.objects.filter(began_at__lte=Now() - every, completed_at__isnull=False).update(
        position=NIL, began_at=Now(), completed_at=None
    )
