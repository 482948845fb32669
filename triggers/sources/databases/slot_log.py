import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from triggers.sources.databases.changes import TRUNCATE, Table, data_of, subject_of
from triggers.sources.databases.pgoutput import (
    Begin,
    Commit,
    Message,
    Origin,
    Relation,
    RowChange,
    Truncate,
    decode,
)
from triggers.sources.databases.place import Last, Place, timeline_at
from triggers.sources.databases.proof import Proof
from triggers.sources.databases.server import Server
from triggers.sources.databases.slot_settings import MESSAGE, SlotSettings
from triggers.sources.databases.wire import Frame, System, lsn_text
from triggers.sources.http.payload import Payload
from triggers.sources.runner import Received, SourceError


class SlotLog:
    """The log of a slot as one connection sends it: makes events of its changes, and moves the place with each."""

    def __init__(
        self,
        settings: SlotSettings,
        publication: str,
        server: Server,
        now: System,
        history: Mapping[int, int],
        place: Place,
        proof: Proof,
    ) -> None:
        self.settings, self.publication, self.server = settings, publication, server
        self.source = f"postgresql:{now.id}/{now.database}"
        self.timeline, self.history = now.timeline, history
        self.place, self.proof = place, proof
        self.tables: dict[int, Table] = {}
        self.own: set[int] = set()  # those of a Wakeful
        self.begun: Begin | None = None
        self.index = self.skip = 0
        self.origin = ""

    def take(self, frame: Frame, codec: str) -> Sequence[Received]:
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
                types = self.server.built_in(column.type for column in found.columns)
                self.tables[found.oid] = Table(found, self.server.primary_key(found.oid), types, self.excluded(found))
                self.own.discard(found.oid)
                if self.server.is_own(found.schema, found.table):  # it has come to the publication since the beginning
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

    def passed(self, lsn: int) -> None:
        """Outside of a transaction: before this place, the slot has nothing of ours that it has not sent."""
        if self.begun is None and lsn > self.place.lsn:
            self.proof.passed(lsn)
            self.place = replace(self.place, lsn=lsn)

    def excluded(self, relation: Relation) -> frozenset[str]:
        return self.settings.excluded_of(relation, self.server.parents(relation.oid))

    def event(self, table: Table, change: RowChange, *, id: str) -> Received:
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

    def _change(self, change: RowChange, id: str) -> Received | None:
        return None if change.oid in self.own else self.event(self.tables[change.oid], change, id=id)

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
