"""Taking old rows away, a thousand at a time, while everything else goes on.

A *walk* goes over a table whose ids are ordered by time, oldest first, each batch a range of the primary key and one
transaction, and remembers in a Sweep row how far it came: its cost is that of the rows it meets, not of the table.

1. A row that somebody has locked, or that is still needed, is passed over. So that it goes some day, a walk sets out
   anew from the oldest row every AFRESH.
2. The rows are locked first, and judged in a new statement after that: whoever came to need one before had locked it
   (a replay does) and is seen; whoever comes later waits, and then finds it gone.
3. The Sweep row is locked as well, so several may prune at once: they take turns, batch by batch.
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

from agents.ids import first_id_at
from runs.db.sql import database_now, execute, fetch
from runs.failpoints import failpoint
from runs.models import NIL, Sweep
from runs.retention.removal import REMOVING

BATCH = 1_000  # rows of one transaction
AFRESH = timedelta(days=7)
# Pruning can wait, and must not make others wait. A thousand ids look to the planner like a reason to read a whole table,
# for every batch. Entries of the audit log are deleted by retention alone: REMOVING tells their trigger.
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
DELETE FROM {table} WHERE {key} IN (
  SELECT {key} FROM {table} WHERE {which} LIMIT %(limit)s::int FOR UPDATE SKIP LOCKED)
"""
COUNT_FEW = "SELECT count(*) FROM {table} WHERE {which}"

Judge = Callable[[Sequence[UUID], datetime], list[UUID]]
Portion = Callable[[Sequence[UUID]], Sequence[UUID]]
Remove = Callable[[Sequence[UUID]], object]


@dataclass(frozen=True, kw_only=True)
class Removed:
    """What a batch took away, and whether another would find more."""

    rows: int
    more: bool


class Step(Protocol):
    """One thing that retention takes away."""

    @property
    def name(self) -> str: ...

    def batch(self, limit: int = BATCH) -> Removed:
        """Take the next ones away, in a transaction of its own."""

    def count(self) -> int:
        """How many would go if there were time for all; nothing is changed."""


@dataclass(frozen=True, kw_only=True)
class Walk:
    """Over a table of time-ordered UUIDs. `judge` says which of these rows may go, being older than an instant, and
    `foresee` which would if the walks before this one were done; `portion` how many of them one transaction can take, at
    least one; `lag` is how far it stays behind that instant, so that it meets few rows that are not ready, and it never
    overtakes the walk named by `after`."""

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
        return [id for (id,) in fetch(RANGE.format(table=self.table), [position, end, limit])]

    def _lock_and_judge(self, ids: Sequence[UUID], cutoff: datetime) -> list[UUID]:
        locked = [id for (id,) in fetch(LOCK.format(table=self.table), [ids])] if ids else []
        return self.judge(locked, cutoff) if locked else []


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """Of rows that a statement finds by itself; the statements take `%(keep)s`, and to delete `%(limit)s`."""

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
    """Of the first rows of a table that lie in the order they were written, while they are older than `keep`."""
    names = {"table": table, "at": at}
    return Deletion(name=name, keep=keep, delete=DELETE_OLDEST.format(**names), which=COUNT_OLDEST.format(**names))


def few(name: str, table: str, *, key: str, which: str, keep: timedelta) -> Deletion:
    """Of the rows of a small table, or of an index, for which a condition on `%(keep)s` holds."""
    names = {"table": table, "key": key, "which": which}
    return Deletion(name=name, keep=keep, delete=DELETE_FEW.format(**names), which=COUNT_FEW.format(**names))


def set_out_afresh(*, every: timedelta = AFRESH) -> None:
    """Send walks back to the oldest row that reached the young ones, and set out so long ago or longer."""
    Sweep.objects.filter(began_at__lte=Now() - every, completed_at__isnull=False).update(
        position=NIL, began_at=Now(), completed_at=None
    )
