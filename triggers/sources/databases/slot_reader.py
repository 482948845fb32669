import time
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg

from triggers.sources.continuity import Gap, Mark, Reason, Span
from triggers.sources.databases import snapshot
from triggers.sources.databases.connection import conninfo, in_words, source_error
from triggers.sources.databases.pgoutput import Undecodable
from triggers.sources.databases.place import Place, beginning, resume, set_back
from triggers.sources.databases.proof import Proof, SetBack
from triggers.sources.databases.server import Server
from triggers.sources.databases.slot_log import SlotLog
from triggers.sources.databases.slot_refusal import error_of_log, refusal
from triggers.sources.databases.slot_settings import SlotSettings
from triggers.sources.databases.wire import Wire, lsn_of, lsn_text
from triggers.sources.runner import BATCH, BATCH_BYTES, Assignment, Batch, Poison, Reader, Received, SourceError

TELL_EVERY = 10.0  # seconds between two signs of life, and between two positions where nothing changes
HELD = 10.0  # seconds in which nothing may be read, after which the server is let go until something may
SILENT = 60.0  # seconds without a sign of life of the server, after which another connection looks whether it is alive
AT_ONCE = timedelta(seconds=1)


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
        self.found: list[Gap] | None = None  # at the beginning, until it is handed over
        self.tell_at = self.idle_at = 0.0
        self.held_at: float | None = None  # since when nothing may be read
        try:
            mark = assignment.marks.get(self.slot, Mark(next=0))
            self.stored = Place.load(assignment.position, mark.note)
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def place(self) -> Place:
        return self.log.place

    def read(self, wait: float) -> Batch:
        self.held_at = None
        try:
            if self.wire is None:
                self._begin()
            elif self.server and self.server.has_ended:
                self.close()
                raise SourceError("The server ends its connections, such as when it stops.")
            if self.found is not None:
                found, self.found = self.found, None
                return self._batch(gaps=found)
            return self._changes(wait) if self.place.snapshot is None else self._snapshot(self.place.snapshot)
        except SetBack:
            return self._set_back()
        except psycopg.Error as error:
            raise error_of_log(error, self.slug) from None

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

    def _begin(self) -> None:
        """Go on behind what is recorded: what was only passed, or not handed over, is found again."""
        stored = self.stored
        self.server = Server(self.conninfo, f"wakeful-{self.slug}")
        facts = self.server.slot_facts(self.slot, self.publication)
        if reason := refusal(facts, self.slot, self.publication, self.slug, stored):
            raise reason
        self.wire = Wire(self.conninfo, f"wakeful-{self.slug}")
        now = self.wire.identify()
        history, confirmed = self.wire.history(now.timeline), lsn_of(facts.confirmed)
        self.fresh = beginning(now, confirmed, self.slot, self.publication)
        place, gap = resume(stored, self.fresh, now, history)
        if gap or stored is None or stored.slot != self.slot:
            place = self._with_snapshot(place)
        self.recorded, proof = place.lsn, Proof(place, confirmed)
        # Also during a snapshot: the slot is then taken, and nothing is read from it yet.
        self.wire.start(self.slot, self.publication, place.start)
        self.log = SlotLog(self.settings, self.publication, self.server, now, history, place, proof)
        self.found = ([gap] if gap else []) if place != stored else None

    def _set_back(self) -> Batch:
        """The next connection reads what the slot has."""
        gap = set_back(self.place, self.fresh)
        self.log.place = self._with_snapshot(self.fresh)
        return self._batch(gaps=[gap], failure=SourceError(f"{gap.detail}.", retry_after=AT_ONCE))

    def _with_snapshot(self, place: Place) -> Place:
        """A snapshot that begins has a number of its own: after a restore, another row may stand where one stood in an earlier one."""
        return replace(place, snapshot={"id": uuid4().hex[:12]}) if self.settings.snapshot else place

    def _batch(self, **kept: Any) -> Batch:
        """With the place, and as the note of its mark what was sent last; places of the log are not counted."""
        self.stored, last = self.place, self.place.last  # it is recorded before the next read
        span = Span(stream=self.slot, first=0, next=0, is_counted=False, note=last and last.dump())
        return Batch(position=self.place.dump(), spans=[span], **kept)

    def _snapshot(self, state: dict[str, Any]) -> Batch:
        try:
            part = snapshot.read_part(self.log.server, self.publication, state, self.log.excluded)
        except psycopg.errors.InsufficientPrivilege as error:
            raise SourceError(
                f"The snapshot cannot be read: {in_words(error)}.",
                remedy="GRANT USAGE ON SCHEMA …, GRANT SELECT ON … to the user of the source; with row-level security also "
                "ALTER ROLE … BYPASSRLS.",
            ) from None
        messages, kept = [], {name: value for name, value in state.items() if name == "id"}
        if part.table:
            began = f"snapshot/{kept.get('id') or lsn_text(self.place.lsn)}/{part.table.relation.oid}/{part.file}"
            messages = [self.log.event(part.table, change, id=f"{began}/{place}") for place, change in part.rows]
        self.log.place = replace(self.place, snapshot=None if part.state is None else {**kept, **part.state})
        self._tell()
        return self._batch(messages=messages)

    def _changes(self, wait: float) -> Batch:
        """What has come, also a part of a transaction."""
        if (wire := self.wire) is None:
            raise RuntimeError("the reader is closed")
        messages: list[Received | Poison] = []
        until, size = time.monotonic() + wait, 0
        failure: SourceError | None = None
        try:
            frame = wire.receive(wait)
            while frame:
                found = self.log.take(frame, wire.codec)
                messages += found
                size += len(frame.data) if found else 0
                if len(messages) >= BATCH or size >= BATCH_BYTES or time.monotonic() > until:
                    break
                frame = wire.receive(0)
        except (psycopg.Error, Undecodable) as error:  # what came before it is recorded all the same
            if not messages:
                raise
            failure = error_of_log(error, self.slug) if isinstance(error, psycopg.Error) else SourceError(f"{error}.")
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
        self.log.passed(wire.seen)
        if self.place.lsn == self.recorded or time.monotonic() < self.idle_at:
            return Batch()
        self.idle_at = time.monotonic() + TELL_EVERY
        return self._batch(receipt=True)

    def _tell(self, *, ask: bool = False) -> None:
        if self.wire is None:  # let go; the next read begins where it goes on
            return
        try:
            self.wire.tell(self.recorded, ask=ask)
        except psycopg.Error as error:
            raise source_error(error) from None
        self.tell_at = time.monotonic() + TELL_EVERY

    def _require_alive(self, wire: Wire) -> None:
        """A server that decodes a large transaction sends nothing for a while; one that is frozen does not answer at all."""
        if wire.silence > SILENT:
            Server(self.conninfo, f"wakeful-{self.slug}").close()
            wire.heard_at = time.monotonic()
