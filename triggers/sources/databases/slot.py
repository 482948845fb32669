import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg

from agents.kernel.redaction import SECRET_FIELD
from triggers.sources.continuity import Gap, Gaps, Mark, Reason, Span
from triggers.sources.databases import snapshot
from triggers.sources.databases.changes import TRUNCATE, Table, data_of, subject_of
from triggers.sources.databases.connection import FORM, address, conninfo, in_words, source_error
from triggers.sources.databases.pgoutput import (
    Begin,
    Commit,
    Message,
    Origin,
    Relation,
    RowChange,
    Truncate,
    Undecodable,
    decode,
)
from triggers.sources.databases.place import Last, Place, beginning, resume, set_back, timeline_at
from triggers.sources.databases.proof import Proof, SetBack
from triggers.sources.databases.server import OLDEST, PLUGIN, Look, Server
from triggers.sources.databases.wire import Frame, Wire, lsn_of, lsn_text
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, register
from triggers.sources.runner import (
    BATCH,
    BATCH_BYTES,
    Assignment,
    Batch,
    Poison,
    Reader,
    Received,
    Runner,
    SourceError,
)
from triggers.sources.settings import InvalidSettings, setting, whole_number

NAME = re.compile(r"[a-z0-9_]{0,63}", re.ASCII)
ALIAS = re.compile(r"[A-Za-z0-9_]{0,63}", re.ASCII)
TELL_EVERY = 10.0  # seconds between two signs of life, and between two positions where nothing changes
HELD = 10.0  # seconds in which nothing may be read, after which the server is let go until something may
SILENT = 60.0  # seconds without a sign of life of the server, after which it is asked by another connection
AT_ONCE = timedelta(seconds=1)
MESSAGE = "db.message"


def identifier(value: str) -> str:
    return "" if NAME.fullmatch(value) else "must have at most 63 characters: lower-case letters, digits and _"


def word(value: str) -> str:
    return "" if ALIAS.fullmatch(value) else "must have at most 63 characters: letters, digits and _"


def _named(value: str) -> frozenset[str]:
    return frozenset(part.strip() for part in value.split(","))


@dataclass(frozen=True, kw_only=True)
class SlotSettings:
    """The database, and the slot and the publication in it."""

    url: str = setting(
        "", "Database", f"{FORM}. The password is the source's secret.", check=address, secret_goes_to=str
    )
    slot: str = setting("", "Slot", "Empty: wakeful_<slug>. `manage.py slot create` makes it.", check=identifier)
    publication: str = setting("", "Publication", "The tables to read. Empty: the name of the slot.", check=identifier)
    alias: str = setting("", "Name in types", "In place of the schema: db.<name>.<table>.insert.", check=word)
    snapshot: bool = setting(
        False,
        "Snapshot",
        "Turn on to take first the rows that are there when reading begins, and again after a gap: each is an event db.….snapshot.",
    )
    exclude: str = setting(
        "",
        "Excluded columns",
        "Such as: note, customers.phone (also of its partitions), public.customers.phone. Their values are never stored. Columns whose "
        "names look like those of secrets are excluded, too.",
    )
    secrets: str = setting(
        "",
        "Columns that are no secrets",
        "Columns that are stored although their names look like those of secrets.",
        secret_goes_to=_named,
    )
    messages: str = setting(
        "", "Messages", f"Prefix of logical messages (pg_logical_emit_message) to take as {MESSAGE}. Empty: none."
    )
    alarm_mb: int = setting(
        1024,
        "Alarm at",
        "Megabytes of WAL that the server keeps for the slot, from which on that is a problem. Well below its free disk space.",
        check=whole_number(1, 10**7),
    )

    def __post_init__(self) -> None:
        if not self.url:
            raise InvalidSettings({"url": "is required"})

    def excluded_of(self, relation: Relation, parents: Iterable[tuple[str, str]] = ()) -> frozenset[str]:
        """`parents` are the tables of which it is a part, by schema and name."""
        excluded, stored = _named(self.exclude), _named(self.secrets)
        tables = {(relation.schema, relation.table), *parents}
        of_tables = {place for schema, table in tables for place in (f"{table}.", f"{schema}.{table}.")}
        return frozenset(
            column.name
            for column in relation.columns
            if (own := {column.name, *(f"{place}{column.name}" for place in of_tables)}) & excluded
            or SECRET_FIELD.search(column.name)
            and not own & stored
        )

    def slot_of(self, slug: str) -> str:
        return self.slot or f"wakeful_{re.sub('[^a-z0-9_]', '_', slug.lower())}"[:63]

    def publication_of(self, slug: str) -> str:
        return self.publication or self.slot_of(slug)


@register
class ReplicationSlot(Runner[SlotSettings]):
    name = "postgresql"
    label = "PostgreSQL changes"
    help_text = (
        "Reads the changes of another database from a logical replication slot: each inserted, updated or deleted row is an event, "
        "in the order of the commits."
    )
    group = Group.DATABASES
    docs = "replication"
    settings_class = SlotSettings
    secret_label = "Password"  # noqa: S105  (a label)
    is_secret_given = True
    setup = (
        "Set wal_level = logical at the server (PostgreSQL 14 or later), and max_slot_wal_keep_size, so that a slot that nothing reads "
        "cannot fill the disk.",
        "Create a role with LOGIN and REPLICATION, and grant it SELECT on the tables if the source takes a snapshot.",
        "For old values in updates and deletes: ALTER TABLE … REPLICA IDENTITY FULL.",
        "Enter the address here, and the password as the source's secret.",
        "Create the publication and the slot: manage.py slot create SOURCE --tables public.orders,public.items; with --sql it prints the "
        "statements for the owner of the tables.",
        "Before you delete the source: manage.py slot drop SOURCE.",
    )
    docs_url = "https://www.postgresql.org/docs/current/logicaldecoding-explanation.html"

    gaps = Gaps(
        are_seen=True,
        how="a slot that was lost, made again or read by another program, a failover and a restored server, also one that has grown since, "
        "are noticed; how many changes are missing is not known.",
    )

    def clean_secret(self, secret: str) -> str:
        if not secret.strip():
            raise InvalidSettings({"secret": "must not be empty"})
        return secret

    def new_secret(self) -> str:
        raise NotImplementedError("the server has the password")

    def connect(self, assignment: Assignment[SlotSettings]) -> Reader:
        try:
            return SlotReader(assignment)
        except psycopg.Error as error:
            raise source_error(error) from None


class SlotReader(Reader):
    """A server that shuts down waits until the reader of each slot has confirmed all changes, for as long as it gets signs of life. So a
    reader that cannot confirm must not stay: it closes its connections when the server begins to stop, which ends the ordinary one
    first, and when nothing may be read for a while. The server keeps the changes, and the next read connects again."""

    def __init__(self, assignment: Assignment[SlotSettings]) -> None:
        self.settings = settings = assignment.settings
        self.slug = assignment.slug
        self.slot, self.publication = settings.slot_of(self.slug), settings.publication_of(self.slug)
        self.conninfo = conninfo(settings.url, assignment.secret)
        self.wire: Wire | None = None
        self.server: Server | None = None
        self.first: Batch | None = None
        self.tables: dict[int, Table] = {}
        self.own: set[int] = set()  # those of a Wakeful
        self.begun: Begin | None = None
        self.index = self.skip = 0
        self.origin = ""
        self.tell_at = self.idle_at = 0.0
        self.held_at: float | None = None  # since when nothing may be read
        try:
            mark = assignment.marks.get(self.slot, Mark(next=0))
            self._begin(Place.load(assignment.position, mark.note))
        except BaseException:
            self.close()
            raise

    def read(self, wait: float) -> Batch:
        self.held_at = None
        try:
            if self.wire is None:
                self._begin(self.place)
            elif self._open_server().has_ended:
                self.close()
                raise SourceError("The server ends its connections, such as when it stops.")
            if self.first:
                first, self.first = self.first, None
                return first
            return self._changes(wait) if self.place.snapshot is None else self._snapshot(self.place.snapshot)
        except SetBack:
            return self._set_back()
        except psycopg.Error as error:
            raise self._as_source_error(error) from None

    def confirm(self, batch: Batch) -> None:
        self.recorded = lsn_of(batch.position["lsn"])
        self._tell()

    def stay(self) -> None:
        now = time.monotonic()
        self.held_at = self.held_at or now
        if now - self.held_at >= HELD or (self.server and self.server.has_ended):
            self.close()
        else:
            self._tell()

    def close(self) -> None:
        for connection in (self.wire, self.server):
            if connection:
                connection.close()
        self.wire = self.server = None

    def _as_source_error(self, error: psycopg.Error) -> SourceError:
        if not isinstance(error, psycopg.errors.UndefinedObject):
            return source_error(error)
        return SourceError(
            f"PostgreSQL reports: {in_words(error)}.",
            remedy="The log is decoded with the publication as it was when a change was made, and for some change there was none, "
            f"also if there is one now. manage.py slot drop {self.slug} --keep-publication, then manage.py slot create {self.slug}.",
        )

    def _begin(self, stored: Place | None) -> None:
        self.server, self.begun = Server(self.conninfo, f"wakeful-{self.slug}"), None
        look = self.server.look(self.slot, self.publication)
        if reason := refusal(look, self.slot, self.publication, self.slug, stored):
            raise reason
        self.wire = Wire(self.conninfo, f"wakeful-{self.slug}")
        now = self.wire.identify()
        self.timeline, self.history = now.timeline, self.wire.history(now.timeline)
        confirmed = lsn_of(look.confirmed)
        self.fresh = beginning(now, confirmed, self.slot, self.publication)
        self.place, gap = resume(stored, self.fresh, now, self.history)
        if gap or stored is None or stored.slot != self.slot:
            self.place = self._with_snapshot(self.place)
        self.recorded, self.proof = self.place.lsn, Proof(self.place, confirmed)
        # Also during a snapshot: the slot is then taken, and nothing is read from it yet.
        self.wire.start(self.slot, self.publication, self.place.start)
        self.source = f"postgresql:{now.id}/{now.database}"
        if self.place != stored:
            self.first = self._batch(gaps=[gap] if gap else [])

    def _set_back(self) -> Batch:
        """The next connection reads what the slot has."""
        gap = set_back(self.place, self.fresh)
        self.place = self._with_snapshot(self.fresh)
        return self._batch(gaps=[gap], failure=SourceError(f"{gap.detail}.", retry_after=AT_ONCE))

    def _with_snapshot(self, place: Place) -> Place:
        """A snapshot that begins has a number of its own: after a restore, another row may stand where one stood in an earlier one."""
        return replace(place, snapshot={"id": uuid4().hex[:12]}) if self.settings.snapshot else place

    def _batch(self, **kept: Any) -> Batch:
        """With the place, and as the note of its mark what was sent last; places of the log are not counted."""
        last = self.place.last
        span = Span(stream=self.slot, first=0, next=0, is_counted=False, note=last and last.dump())
        return Batch(position=self.place.dump(), spans=[span], **kept)

    def _snapshot(self, state: dict[str, Any]) -> Batch:
        try:
            part = snapshot.read_part(self._open_server(), self.publication, state, self._excluded)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SourceError(
                f"The snapshot cannot be read: {in_words(error)}.",
                remedy="GRANT USAGE ON SCHEMA …, GRANT SELECT ON … to the user of the source; with row-level security also "
                "ALTER ROLE … BYPASSRLS.",
            ) from None
        messages, kept = [], {name: value for name, value in state.items() if name == "id"}
        if part.table:
            began = f"snapshot/{kept.get('id') or lsn_text(self.place.lsn)}/{part.table.relation.oid}/{part.file}"
            messages = [self._event(part.table, change, id=f"{began}/{place}") for place, change in part.rows]
        self.place = replace(self.place, snapshot=None if part.state is None else {**kept, **part.state})
        self._tell()
        return self._batch(messages=messages)

    def _changes(self, wait: float) -> Batch:
        """What has come, also a part of a transaction."""
        wire = self._open_wire()
        messages: list[Received | Poison] = []
        until, size = time.monotonic() + wait, 0
        failure: SourceError | None = None
        try:
            frame = wire.receive(wait)
            while frame:
                found = self._take(frame, wire.codec)
                messages += found
                size += len(frame.data) if found else 0
                if len(messages) >= BATCH or size >= BATCH_BYTES or time.monotonic() > until:
                    break
                frame = wire.receive(0)
        except (psycopg.Error, Undecodable) as error:  # what came before it is recorded all the same
            if not messages:
                raise
            failure = self._as_source_error(error) if isinstance(error, psycopg.Error) else SourceError(f"{error}.")
        said = [f"PostgreSQL reports: {skipped}. Changes of that time have no events." for skipped in wire.skipped]
        gaps = [Gap(stream=self.slot, reason=Reason.UNKNOWN, detail=detail) for detail in said]
        wire.skipped.clear()
        if failure:
            return self._batch(messages=messages, gaps=gaps, failure=failure)
        if wire.reply_wanted or time.monotonic() >= self.tell_at:
            self._tell(ask=True)
        if messages or gaps:
            return self._batch(messages=messages, gaps=gaps)
        self._require_alive(wire)
        return self._idle(wire)

    def _idle(self, wire: Wire) -> Batch:
        """Nothing of ours is written; let the server drop its log all the same."""
        if self.begun is None and wire.seen > self.place.lsn:
            self.proof.passed(wire.seen)
            self.place = replace(self.place, lsn=wire.seen)
        if self.place.lsn == self.recorded or time.monotonic() < self.idle_at:
            return Batch()
        self.idle_at = time.monotonic() + TELL_EVERY
        return self._batch(receipt=True)

    def _open_wire(self) -> Wire:
        if self.wire is None:
            raise RuntimeError("the reader is closed")
        return self.wire

    def _open_server(self) -> Server:
        if self.server is None:
            raise RuntimeError("the reader is closed")
        return self.server

    def _tell(self, *, ask: bool = False) -> None:
        if self.wire is None:  # let go; the next read begins where it goes on
            return
        try:
            self.wire.tell(self.recorded, ask=ask)
        except psycopg.Error as error:
            raise source_error(error) from None
        self.tell_at = time.monotonic() + TELL_EVERY

    def _require_alive(self, wire: Wire) -> None:
        """A server that decodes a large transaction says nothing for a while; one that is frozen does not answer at all."""
        if wire.silence > SILENT:
            Server(self.conninfo, f"wakeful-{self.slug}").close()
            wire.heard_at = time.monotonic()

    def _take(self, frame: Frame, codec: str) -> Sequence[Received]:
        found = decode(frame.data, codec)
        match found:
            case Begin():
                self.begun, self.index, self.origin = found, 0, ""
                is_known = self.proof.is_last(found.lsn, found.mark)
                self.skip = self.place.done if found.lsn == self.place.commit else sys.maxsize if is_known else 0
            case Commit() if self.begun:
                last = self._last(found.lsn, self.begun.mark)
                self.place = replace(self.place, lsn=max(found.end, self.place.lsn), commit=0, done=0, last=last)
                self.begun = None
            case Relation():
                server = self._open_server()
                types = server.built_in(column.type for column in found.columns)
                self.tables[found.oid] = Table(found, server.primary_key(found.oid), types, self._excluded(found))
                self.own.discard(found.oid)
                if server.is_own(found.schema, found.table):  # it has come to the publication since the beginning
                    self.own.add(found.oid)
            case Origin():
                self.origin = found.name
            case RowChange():
                return self._counted(partial(self._change, found))
            case Truncate():
                truncated = [RowChange(TRUNCATE, oid) for oid in found.oids]
                return [event for change in truncated for event in self._counted(partial(self._change, change))]
            case Message() if found.is_transactional:
                return self._counted(partial(self._message, found))
            case Message() if not self.proof.is_last(found.lsn, found.mark):
                self.place = replace(self.place, lsn=found.lsn, last=self._last(self.place.lsn, found.mark))
                timeline = timeline_at(found.lsn, self.timeline, self.history)
                message = self._message(found, f"{timeline}/{lsn_text(found.lsn)}/{found.mark.partition('/')[2]}")
                return [message] if message else []
        return []

    def _counted(self, make: Callable[[str], Received | None]) -> Sequence[Received]:
        """The next change of the transaction, unless it is recorded already. Its place in it is a part of its id."""
        if self.begun is None:
            raise SourceError("PostgreSQL sent a change outside of a transaction.")
        index, self.index = self.index, self.index + 1
        if index < self.skip:
            return []
        last = self._last(self.begun.lsn, self.begun.mark)
        self.place = replace(self.place, commit=self.begun.lsn, done=self.index, last=last)
        timeline = timeline_at(self.begun.lsn, self.timeline, self.history)
        event = make(f"{timeline}/{lsn_text(self.begun.lsn)}/{self.begun.microseconds:x}/{index}")
        return [event] if event else []

    def _last(self, lsn: int, mark: str) -> Last:
        return Last(publication=self.publication, lsn=lsn, mark=mark)

    def _excluded(self, relation: Relation) -> frozenset[str]:
        return self.settings.excluded_of(relation, self._open_server().parents(relation.oid))

    def _change(self, change: RowChange, id: str) -> Received | None:
        return None if change.oid in self.own else self._event(self.tables[change.oid], change, id=id)

    def _event(self, table: Table, change: RowChange, *, id: str) -> Received:
        name, data = table.name_of(self.settings.alias), data_of(table, change)
        return Received(
            id=id,
            type=f"db.{name}.{change.operation}",
            origin=self.source,
            subject=subject_of(name, data["pk"]),
            time=self.begun.time if self.begun else None,
            payload=Payload(data=data),
            headers={**self._headers(), "schema": table.relation.schema, "table": table.relation.table},
        )

    def _message(self, message: Message, id: str) -> Received | None:
        prefix = self.settings.messages
        if not prefix or not message.prefix.startswith(prefix):
            return None
        return Received(
            id=id,
            type=MESSAGE,
            origin=self.source,
            subject=message.prefix,
            time=self.begun.time if self.begun else None,
            payload=Payload(data={"prefix": message.prefix, "content": message.content.decode(errors="replace")}),
            body=message.content,
            headers=self._headers(),
        )

    def _headers(self) -> dict[str, str]:
        if self.begun is None:
            return {}
        said = {"xid": str(self.begun.xid), "lsn": lsn_text(self.begun.lsn)}
        return {**said, "replication-origin": self.origin} if self.origin else said


def refusal(look: Look, slot: str, publication: str, slug: str, stored: Place | None) -> SourceError | None:
    """Why a slot cannot be read, and what to do."""
    since = (
        f" Changes that were committed after {lsn_text(stored.lsn)} may be missing." if stored and stored.lsn else ""
    )
    create = f"manage.py slot create {slug}"
    if look.version < OLDEST:
        return SourceError(
            f"The server is PostgreSQL {look.version // 10_000}.", remedy="PostgreSQL 14 or later is needed."
        )
    if look.wal_level != "logical":
        return SourceError(
            f"The server has wal_level = {look.wal_level}, so that it logs no changes of rows.",
            remedy="Set wal_level = logical in its configuration, and restart it.",
        )
    if not look.has_slot:
        return SourceError(
            f"The replication slot {slot} does not exist.{since}",
            remedy=f"Create it: {create}. Events begin with the changes after that; with the setting “Snapshot” also the rows of that "
            "time come. A slot is not made again by itself, because changes between the two would be missing in silence. After a "
            "failover, check whether the slot was copied to the new primary (failover slots of PostgreSQL 17).",
        )
    if look.is_lost:
        return SourceError(
            f"The replication slot {slot} is lost: the server has removed WAL that was not read "
            f"({look.invalidation or look.wal_status}).{since}",
            remedy=f"Drop it and create it again: manage.py slot drop {slug} --keep-publication, then {create}. Raise "
            f"max_slot_wal_keep_size (now {look.keep}) if the disk has room.",
        )
    if look.plugin != PLUGIN or look.slot_database != look.database:
        return SourceError(
            f"The replication slot {slot} is one of {look.plugin or 'physical replication'} in database {look.slot_database or '–'}, not "
            f"of {PLUGIN} in {look.database}.",
            remedy=f"Name another slot in the source's settings, and create it: {create}.",
        )
    if not look.has_publication:
        return SourceError(
            f"The publication {publication} does not exist.",
            remedy="Create it before the slot: pgoutput looks for it as it was when a change was made. Drop the slot, then "
            f"{create} --tables public.orders.",
        )
    if look.has_events:
        return SourceError(
            f"The publication {publication} has tables of Wakeful's own, so that each event would make another one.",
            remedy="Publish the tables of your own alone. For those in Wakeful's database there is the kind “Table of this database”.",
        )
    if look.is_active:
        return SourceError(
            f"The replication slot {slot} is in use by {look.reader or f'the server process {look.active_pid}'}.",
            remedy="A slot has one reader. If it is another program or another Wakeful, give this source a slot of its own. If it is "
            "a process of this Wakeful that died or froze, the server frees the slot within half a minute.",
        )
    return None
