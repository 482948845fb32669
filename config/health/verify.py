"""Check the invariants of the database, in one read-only snapshot. May run on a live system at any time.

Each invariant is a statement that finds violations: each row is one. Wakeful's are in `verify.sql`, in the format for your own.
Two invariants are Python: whether every event is explained needs the triggers' filters, and whether a decision matches its
question needs a digest.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from agents.journal.canonical import digest_of
from agents.kernel.ids import first_id_at
from runs.db.sql import execute, fetch
from runs.models import Approval
from triggers.dispatch.unexplained import unexplained

OURS = Path(__file__).with_suffix(".sql")
SHOWN = 20  # violations shown per invariant
APPROVALS = 500  # per batch
READ_ONLY = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"

Row = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Invariant:
    """An invariant, and the statement that finds violations; `%(first)s` in it is the lowest id to check."""

    name: str
    statement: str

    @property
    def when_drained(self) -> bool:
        return self.name.startswith("drained:")


@dataclass(frozen=True, kw_only=True)
class Finding:
    """An invariant and its violations, at most SHOWN rows."""

    name: str
    violations: Sequence[Row]


@dataclass(frozen=True, kw_only=True)
class Report:
    """The result of `verify`."""

    findings: Sequence[Finding]
    counts: Row = field(default_factory=dict)

    @property
    def violated(self) -> list[Finding]:
        return [finding for finding in self.findings if finding.violations]

    @property
    def holds(self) -> bool:
        return not self.violated


COUNTS = """
SELECT (SELECT count(*) FROM triggers_event WHERE id >= %(first)s::uuid) AS events,
       (SELECT coalesce(sum(count), 0)::bigint FROM triggers_redelivery WHERE event_id >= %(first)s::uuid) AS duplicates,
       (SELECT coalesce(jsonb_object_agg(status, runs), '{}') FROM (
          SELECT status, count(*) AS runs FROM runs_run WHERE id >= %(first)s::uuid GROUP BY status) by_status) AS runs,
       (SELECT coalesce(jsonb_object_agg(outcome, attempts), '{}') FROM (
          SELECT outcome, count(*) AS attempts FROM runs_attempt WHERE run_id >= %(first)s::uuid GROUP BY outcome) by_outcome) AS attempts,
       (SELECT coalesce(jsonb_object_agg(outcome, decisions), '{}') FROM (
          SELECT outcome, count(*) AS decisions FROM triggers_decision WHERE event_id >= %(first)s::uuid
          GROUP BY outcome) by_outcome) AS decisions,
       (SELECT count(*) FROM runs_run WHERE id >= %(first)s::uuid AND parent_id IS NOT NULL) AS children,
       (SELECT count(*) FROM runs_run WHERE id >= %(first)s::uuid AND forked_from_id IS NOT NULL) AS forks,
       (SELECT coalesce(jsonb_object_agg(effect, steps), '{}') FROM (
          SELECT effect, count(*) AS steps FROM runs_step WHERE run_id >= %(first)s::uuid GROUP BY effect) by_effect) AS steps,
       (SELECT coalesce(jsonb_object_agg(kind, waits), '{}') FROM (
          SELECT kind, count(*) AS waits FROM runs_wait WHERE run_id >= %(first)s::uuid GROUP BY kind) by_kind) AS waits
"""

ASKED = """
SELECT approval.id, wait.run_id, question, arguments, digest, decision, decided_arguments, decided_digest
FROM runs_approval approval JOIN runs_wait wait ON wait.id = approval.wait_id JOIN runs_run run ON run.id = wait.run_id
WHERE approval.id > %s::uuid AND run.id >= %s::uuid AND run.payload_removed_at IS NULL ORDER BY approval.id LIMIT %s::int
"""
UNKNOWN = "SELECT id FROM unnest(%s::uuid[]) AS id WHERE NOT EXISTS (SELECT FROM triggers_event WHERE triggers_event.id = id.id)"


def verify(
    *,
    since: datetime | None = None,
    drained: bool = False,
    accepted: Iterable[UUID] = (),
    own: Sequence[Invariant] = (),
) -> Report:
    """Find violations among events and their runs since an instant (None: all).

    `accepted`: event ids from answers to senders, which must exist; `own`: invariants of your own tables.
    """
    parameters = {"first": first_id(since)}
    invariants = [*invariants_in(OURS.read_text()), *own]
    with snapshot():
        findings = [find(invariant, parameters) for invariant in invariants if drained or not invariant.when_drained]
        findings.append(Finding(name="every event is explained", violations=unexplained(parameters["first"], SHOWN)))
        findings.append(Finding(name="a decision matches its question", violations=misjudged(parameters["first"])))
        findings.append(Finding(name="no accepted event is lost", violations=lost(accepted)))
        [counts] = read(COUNTS, parameters)
    counts = {name: json.loads(count) if isinstance(count, str) else count for name, count in counts.items()}
    return Report(findings=findings, counts=counts)


@contextmanager
def snapshot() -> Iterator[None]:
    """A read-only snapshot; inside a caller's transaction, that transaction."""
    begins = not connection.in_atomic_block
    with transaction.atomic():
        if begins:
            execute(READ_ONLY)
        yield


def first_id(since: datetime | None) -> UUID:
    """The lowest id since then: ids of events and their runs begin with the time in milliseconds."""
    return first_id_at(since) if since else UUID(int=0)


def find(invariant: Invariant, parameters: Row) -> Finding:
    # Without parameters, a % in the statement needs no escape.
    given = parameters if "%(first)s" in invariant.statement else None
    return Finding(name=invariant.name, violations=read(invariant.statement, given))


def read(statement: str, parameters: Row | None) -> list[Row]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchmany(SHOWN)]


def misjudged(first: UUID) -> list[Row]:
    """Approvals whose digest, or the digest of their decision, does not match."""
    found: list[Row] = []
    after = UUID(int=0)
    while len(found) < SHOWN and (rows := fetch(ASKED, [after, first, APPROVALS])):
        found += [{"approval": id, "run": run, "decision": asked[4]} for id, run, *asked in rows if not _fits(*asked)]
        after = rows[-1][0]
    return found[:SHOWN]


def _fits(
    question: str, arguments: str | None, digest: str, decision: str, decided_arguments: str | None, decided_digest: str
) -> bool:
    asked, decided = (None if text is None else json.loads(text) for text in (arguments, decided_arguments))
    if digest != digest_of(question, asked):
        return False
    if decision == Approval.Decision.EDIT:
        return decided_digest == digest_of(question, decided)
    if decision == Approval.Decision.APPROVE:
        return decided_digest == digest and decided == asked
    return not decided_digest and decided is None


def lost(accepted: Iterable[UUID]) -> list[Row]:
    found: list[Row] = []
    ids = iter(accepted)
    while batch := list(islice(ids, 10_000)):
        found += [{"event": id} for (id,) in fetch(UNKNOWN, [batch])]
    return found[:SHOWN]


def invariants_in(text: str) -> list[Invariant]:
    """Parse invariants from SQL: for each a line `--- what must hold`, then the statement that finds violations. One whose
    name begins with "drained:" holds only when no work is left. ValueError if there is no invariant."""
    parts = re.split(r"(?m)^--- *(.+)\n", text)
    found = [
        Invariant(name=name.strip(), statement=statement.strip().rstrip(";"))
        for name, statement in zip(parts[1::2], parts[2::2], strict=True)
    ]
    if not found:
        raise ValueError(
            "the file has no invariant: write `--- what must hold` above each statement that finds violations"
        )
    return found
