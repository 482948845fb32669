"""The messages of pgoutput, version 1 of its protocol, as PostgreSQL's logical replication sends them."""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
DEFAULT = "d"  # REPLICA IDENTITY DEFAULT: the primary key
FULL = "f"  # REPLICA IDENTITY FULL: every column counts as part of the key
CODEC = "utf-8"  # of values
IS_KEY = 1
IS_TRANSACTIONAL = 1


class Unchanged:
    """A large value that an UPDATE did not change: the log does not have it."""


UNCHANGED: Final = Unchanged()
Row = Sequence[bytes | None | Unchanged]  # values as text in UTF-8, in the order of the relation's columns


@dataclass(frozen=True)
class Column:
    name: str
    type: int  # its oid
    is_key: bool  # part of the replica identity


@dataclass(frozen=True)
class Relation:
    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Begin:
    lsn: int  # of the commit
    time: datetime
    xid: int

    @property
    def microseconds(self) -> int:
        """Its time as the log has it."""
        return (self.time - EPOCH) // timedelta(microseconds=1)

    @property
    def mark(self) -> str:
        """Unique to this commit, also beside one at its place in the log of a server that was restored."""
        return f"{self.lsn:x}/{self.xid}/{self.microseconds:x}"


@dataclass(frozen=True)
class Commit:
    lsn: int
    end: int  # where the next record begins


@dataclass(frozen=True)
class RowChange:
    """`key` is the old row's replica identity, sent if it changed or if the row is deleted; `old` is the whole old row."""

    operation: str
    oid: int
    old: Row | None = None
    key: Row | None = None
    new: Row | None = None


@dataclass(frozen=True)
class Truncate:
    oids: tuple[int, ...]


@dataclass(frozen=True)
class Message:
    """A message of pg_logical_emit_message."""

    is_transactional: bool
    lsn: int  # where its record ends, and the next one begins
    prefix: str
    content: bytes

    @property
    def mark(self) -> str:
        """As that of a transaction: a message outside of one has no number and no time."""
        return f"{self.lsn:x}/{sha256(self.prefix.encode() + bytes(1) + self.content).hexdigest()[:16]}"


@dataclass(frozen=True)
class Origin:
    """The transaction came from another server, by replication."""

    name: str


@dataclass(frozen=True)
class Type:
    """The name of a type that is not built in."""

    oid: int


Decoded = Begin | Commit | Relation | RowChange | Truncate | Message | Origin | Type


class Undecodable(ValueError):
    """A message that this version of the protocol does not have."""


def decode(data: bytes, codec: str = CODEC) -> Decoded:
    """`codec` is that of its texts."""
    tag, body = data[:1], _Body(data, codec)
    match tag:
        case b"I":
            oid, _ = body.number("I"), body.tag()
            return RowChange("insert", oid, new=body.row())
        case b"U":
            return _update(body)
        case b"D":
            oid, kind = body.number("I"), body.tag()
            return RowChange("delete", oid, **{_PART[kind]: body.row()})
        case b"B":
            return Begin(body.number("Q"), body.time(), body.number("I"))
        case b"C":
            body.number("B")
            return Commit(body.number("Q"), body.number("Q"))
        case b"R":
            return _relation(body)
        case b"T":
            count, _ = body.number("I"), body.number("B")
            return Truncate(tuple(body.number("I") for _ in range(count)))
        case b"M":
            flags, lsn, prefix = body.number("B"), body.number("Q"), body.text()
            return Message(bool(flags & IS_TRANSACTIONAL), lsn, prefix, body.counted())
        case b"O":
            body.number("Q")
            return Origin(body.text())
        case b"Y":
            return Type(body.number("I"))
    raise Undecodable(f"pgoutput sent a message of the unknown kind {tag!r}")


def in_utf8(text: bytes, codec: str) -> bytes:
    """Bytes that are none of its codec become U+FFFD."""
    return text if codec == CODEC else text.decode(codec, errors="replace").encode()


_PART = {"K": "key", "O": "old"}


def _update(body: "_Body") -> RowChange:
    oid, kind = body.number("I"), body.tag()
    parts: dict[str, Row] = {}
    if kind != "N":
        parts[_PART[kind]] = body.row()
        body.tag()
    return RowChange("update", oid, new=body.row(), **parts)


def _relation(body: "_Body") -> Relation:
    oid, schema, table, identity = body.number("I"), body.text() or "pg_catalog", body.text(), body.tag()
    columns = []
    for _ in range(body.number("H")):
        flags, name, type_oid = body.number("B"), body.text(), body.number("I")
        body.number("i")  # the type's modifier
        columns.append(Column(name, type_oid, bool(flags & IS_KEY)))
    return Relation(oid, schema, table, identity, tuple(columns))


class _Body:
    """A cursor in the bytes of a message, behind its tag."""

    def __init__(self, data: bytes, codec: str) -> None:
        self.data, self.codec, self.at = data, codec, 1

    def number(self, code: str) -> int:
        number: int = struct.unpack_from(f">{code}", self.data, self.at)[0]
        self.at += struct.calcsize(f">{code}")
        return number

    def tag(self) -> str:
        self.at += 1
        return chr(self.data[self.at - 1])

    def text(self) -> str:
        end = self.data.index(0, self.at)
        text = self.data[self.at : end].decode(self.codec, errors="replace")
        self.at = end + 1
        return text

    def counted(self) -> bytes:
        size = self.number("I")
        self.at += size
        return self.data[self.at - size : self.at]

    def time(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.number("q"))

    def row(self) -> Row:
        return [self._value() for _ in range(self.number("H"))]

    def _value(self) -> bytes | None | Unchanged:
        match self.tag():
            case "n":
                return None
            case "u":
                return UNCHANGED
            case "t":
                return in_utf8(self.counted(), self.codec)
        raise Undecodable("pgoutput sent a value that is not text")
