"""Record an event once. Every source ends here, except watched tables: their database triggers insert events in the transaction that
changes a row (`triggers.sources.databases.tables`)."""

import re
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from hashlib import sha256
from itertools import chain, count
from typing import Any, Literal
from uuid import UUID

from django.db import transaction
from psycopg.types.json import Jsonb
from uuid_utils.compat import uuid7

from agents.kernel.reserved_types import GAP, RESERVED, is_reserved, refusal
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import Query, execute, execute_many, fetch, fetch_again, fetch_many
from runs.failpoints import failpoint
from triggers.models import Source


@dataclass(frozen=True, kw_only=True)
class Incoming:
    """An event as its source received it; (source_id, ce_source, ce_id) is its identity."""

    source_id: UUID
    ce_source: str
    ce_id: str
    type: str
    subject: str = ""
    time: datetime | None = None
    data: Any = None
    data_error: str = ""
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    target_id: UUID | None = None
    root_id: UUID | None = None
    cause_event_id: UUID | None = None
    cause_run_id: UUID | None = None
    depth: int = 0
    chain: Sequence[str] = ()
    is_tainted: bool = False


@dataclass(frozen=True, kw_only=True)
class Accepted:
    event_id: UUID
    duplicate: bool


@dataclass(frozen=True, kw_only=True)
class Archived(Incoming):
    """An event that was recorded before, here or elsewhere."""

    id: UUID
    received_at: datetime
    body_sha256: str
    payload_removed_at: datetime | None = None


class ReservedType(ValueError):
    """The event's type is reserved for another source; the message names it."""


class SourceDeleted(LookupError):
    """The event's source was deleted meanwhile."""


class SourceChanged(LookupError):
    """The event's source, or what proves its deliveries, is not what the event was verified with."""


# A digest of what deliveries to a source are verified with: its row, and its secrets that are valid now. Of their content, and not of
# the ids of transactions: those are given again after a failover that has lost the last ones.
STATE = """sha256(convert_to(ROW(source.id, source.slug, source.kind, source.settings, source.limits, ARRAY(
  SELECT ROW(secret.id, encode(secret.ciphertext, 'base64')) FROM triggers_secret secret WHERE secret.source_id = source.id
    AND secret.not_before <= statement_timestamp() AND (secret.not_after IS NULL OR secret.not_after > statement_timestamp())
  ORDER BY secret.id))::text, 'UTF8'))"""
# The inserts check the source under the lock of the events, which conflicts with the lock of a deletion: there is no
# foreign key.
INSERT = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, "time", data, data_error, body, headers,
                            body_sha256, target_id, root_id, cause_event_id, cause_run_id, depth, chain, is_tainted)
SELECT * FROM (
  VALUES (%s::uuid, %s::uuid, %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::jsonb, %s::text, %s::bytea, %s::jsonb,
          %s::text, %s::uuid, %s::uuid, %s::uuid, %s::uuid, %s::smallint, %s::text[], %s::boolean)) AS event (id, source_id)
WHERE EXISTS (SELECT FROM triggers_source WHERE id = event.source_id)
ON CONFLICT (source_id, ce_source, ce_id) DO NOTHING
RETURNING id
"""
INSERT_VERIFIED = INSERT.replace(
    "WHERE EXISTS (SELECT FROM triggers_source WHERE id = event.source_id)",
    f"WHERE EXISTS (SELECT FROM triggers_source source WHERE id = event.source_id AND enabled AND {STATE} = %s::bytea)",
)
COLUMNS = """id, source_id, ce_source, ce_id, type, subject, "time", data, data_error, body, headers,
                            body_sha256, target_id, root_id, cause_event_id, cause_run_id, depth, chain, is_tainted"""
VALUES = """(%s::uuid, %s::uuid, %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::jsonb, %s::text, %s::bytea, %s::jsonb,
          %s::text, %s::uuid, %s::uuid, %s::uuid, %s::uuid, %s::smallint, %s::text[], %s::boolean, %s::bytea)"""
# The same check for many events: once for each source, and not for each event. Their order is that of their ids, and not that of a join.
INSERT_MANY_VERIFIED = f"""
INSERT INTO triggers_event ({COLUMNS})
SELECT {COLUMNS} FROM (VALUES {{values}}) AS event ({COLUMNS}, state)
WHERE (source_id, state) IN (SELECT source.id, {STATE} FROM triggers_source source WHERE id = ANY(%s::uuid[]) AND enabled)
ORDER BY id
ON CONFLICT (source_id, ce_source, ce_id) DO NOTHING
RETURNING id
"""  # noqa: S608  (constants)
# Numbers of events of one statement, so that sessions keep few of them prepared.
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64)
# The archived event's id may be taken as well.
INSERT_ARCHIVED = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, "time", data, data_error, body, headers,
                            body_sha256, target_id, root_id, cause_event_id, cause_run_id, depth, chain, is_tainted,
                            received_at, payload_removed_at, imported_at)
SELECT * FROM (
  VALUES (%s::uuid, %s::uuid, %s::text, %s::text, %s::text, %s::text, %s::timestamptz, %s::jsonb, %s::text, %s::bytea, %s::jsonb,
          %s::text, %s::uuid, %s::uuid, %s::uuid, %s::uuid, %s::smallint, %s::text[], %s::boolean,
          %s::timestamptz, %s::timestamptz, clock_timestamp())) AS event (id, source_id)
WHERE EXISTS (SELECT FROM triggers_source WHERE id = event.source_id)
ON CONFLICT DO NOTHING
RETURNING id
"""
# A statement of its own, as at dispatch: the index of fields then sees the data as it is stored.
ARCHIVE = "UPDATE triggers_event SET dispatched_at = clock_timestamp() WHERE id = ANY(%s::uuid[])"
FIRST = """
SELECT id, body_sha256 FROM triggers_event WHERE source_id = %s::uuid AND ce_source = %s::text AND ce_id = %s::text
"""
FIRST_VERIFIED = f"""
SELECT event.id, body_sha256 FROM triggers_event event JOIN triggers_source source ON source.id = source_id
WHERE source_id = %s::uuid AND ce_source = %s::text AND ce_id = %s::text AND enabled AND {STATE} = %s::bytea
"""  # noqa: S608  (a constant)
TAINT_CHANGES = """
UPDATE triggers_event SET is_tainted = true
WHERE cause_run_id = %s::uuid AND received_at >= transaction_timestamp() AND NOT is_tainted
"""
HEADERS = 10  # of the columns
FLAG = """
INSERT INTO triggers_redelivery (event_id, body_sha256, differs, count) VALUES (%s::uuid, %s::text, %s::boolean, 1)
ON CONFLICT (event_id, body_sha256) DO UPDATE SET count = triggers_redelivery.count + 1, last_at = now()
"""


def accept(incoming: Sequence[Incoming]) -> list[Accepted]:
    """Record events, in the caller's transaction or each in its own, and wake the dispatcher after the commit.

    An event with a known identity is a duplicate: it keeps its first id and payload; the redelivery is counted, and flagged
    if its body differs. ReservedType: an event has a type that is reserved for Wakeful; then none is recorded. SourceDeleted: the
    source of an event is gone; the caller's transaction must not go on.
    """
    return _accept(incoming, lambda event: _record(event, INSERT, FIRST, (), SourceDeleted))


def accept_verified(events: Sequence[Incoming], state: bytes) -> list[Accepted]:
    """Record events that were verified with a source in this state, like `accept`, all of them or none. SourceChanged: the source is no
    longer enabled or in this state, and nothing is recorded or counted; it may also have lost the first event with one of these
    identities meanwhile."""
    together: AbstractContextManager[object] = transaction.atomic() if len(events) > 1 else nullcontext()
    with together:
        return _accept(events, lambda event: _record(event, INSERT_VERIFIED, FIRST_VERIFIED, (state,), SourceChanged))


@dataclass(frozen=True, kw_only=True)
class Verified:
    """An event, and the state of the source that it was verified with; `id` is to be its id."""

    event: Incoming
    state: bytes
    id: UUID = field(default_factory=uuid7)


def insert_of(events: Sequence[Verified]) -> Query:
    """The statement that records events, at most SIZES[-1], and returns the ids of those that it has recorded: a duplicate, or one whose
    source has changed, is not among them. The caller wakes the dispatcher."""
    size = next(size for size in SIZES if size >= len(events))
    rows = [[*_columns(one.id, one.event, _digest(one.event)), one.state] for one in events]
    rows += rows[-1:] * (size - len(rows))  # which are duplicates
    sources = {one.event.source_id for one in events}
    return _insert_many(size), [*chain.from_iterable(rows), list(sources)]


@cache
def _insert_many(size: int) -> str:
    places = count(1)
    number: Callable[[re.Match[str]], str] = lambda found: f"${next(places)}"  # noqa: E731
    return re.sub("%s", number, INSERT_MANY_VERIFIED.format(values=",\n  ".join([VALUES] * size)))


def _accept(incoming: Sequence[Incoming], record: Callable[[Incoming], Accepted]) -> list[Accepted]:
    for event in incoming:
        require_free(event)
    failpoint("before_accept")
    accepted = [record(event) for event in incoming]
    failpoint("after_accept")
    nudge_dispatcher()
    return accepted


def accept_own(events: Sequence[Incoming], ids: Sequence[UUID] = ()) -> None:
    """Record events that Wakeful makes by itself, in the caller's transaction, many at a time, with these ids or new ones. An
    existing event is unchanged and does not count as redelivered. The caller wakes the dispatcher."""
    if events:
        given = ids or [uuid7() for _ in events]
        execute_many(INSERT, [_columns(id, event, "") for id, event in zip(given, events, strict=True)])


def accept_archived(archived: Sequence[Archived]) -> list[Literal["imported", "known", "taken"]]:
    """Record events of an archive, in the caller's transaction, as dispatched: they wake no agent. Those with a known identity
    are left as they are; `taken`: another event has the id, or the source is gone."""
    for event in archived:
        if event.type != GAP:  # the source may be of any kind
            require_free(event)
    inserted = [bool(rows) for rows in fetch_many(INSERT_ARCHIVED, map(_archived_columns, archived))]
    old = [event for event, is_new in zip(archived, inserted, strict=True) if not is_new]
    first = iter(fetch_many(FIRST, [(event.source_id, event.ce_source, event.ce_id) for event in old]))
    execute(ARCHIVE, [[event.id for event, is_new in zip(archived, inserted, strict=True) if is_new]])
    return ["imported" if is_new else "known" if next(first) else "taken" for is_new in inserted]


def _archived_columns(event: Archived) -> list[Any]:
    columns = _columns(event.id, event, event.body_sha256)
    if event.payload_removed_at:
        columns[HEADERS] = None
    return [*columns, event.received_at, event.payload_removed_at]


def taint_changes(run_id: UUID) -> None:
    """Taint the events of changes of watched tables that the run has made in this transaction."""
    execute(TAINT_CHANGES, [run_id])


def require_free(event: Incoming) -> None:
    """Raises ReservedType if one of the types is reserved for Wakeful."""
    if not is_reserved(event.type):
        return
    # `run` is allowed for events that runs of versions before this rule have emitted; waits ignore them.
    own = {builtin_source(slug) for slug in (RESERVED.get(event.type), "run") if slug}
    if event.source_id not in own:
        raise ReservedType(refusal(event.type))


def _record(
    event: Incoming, insert: str, first: str, checked: tuple[bytes, ...], refused: type[LookupError]
) -> Accepted:
    event_id = uuid7()
    body_sha256 = _digest(event)
    if fetch_again(insert, [*_columns(event_id, event, body_sha256), *checked]):
        return Accepted(event_id=event_id, duplicate=False)

    found = fetch(first, [event.source_id, event.ce_source, event.ce_id, *checked])
    if not found:
        raise refused
    [(first_id, first_sha256)] = found
    execute(FLAG, [first_id, body_sha256, body_sha256 != first_sha256])
    return Accepted(event_id=first_id, duplicate=True)


def _digest(event: Incoming) -> str:
    return sha256(event.body).hexdigest() if event.body is not None else ""


def _columns(event_id: UUID, event: Incoming, body_sha256: str) -> list[Any]:
    return [
        event_id, event.source_id, event.ce_source, event.ce_id, event.type, event.subject, event.time,
        None if event.data is None else Jsonb(event.data), event.data_error, event.body, Jsonb(event.headers), body_sha256,
        event.target_id, event.root_id or event_id, event.cause_event_id, event.cause_run_id, event.depth,
        list(event.chain), event.is_tainted,
    ]  # fmt: skip


@cache
def builtin_source(slug: str) -> UUID:
    """The id of a source that the migrations create."""
    return Source.objects.values_list("id", flat=True).get(slug=slug)
