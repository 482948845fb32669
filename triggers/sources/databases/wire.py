"""PostgreSQL's protocol of logical replication, on a connection of psycopg that libpq has switched to it.

The server sends as fast as it is read, so that a transaction of any size passes through in parts; SQL functions would decode it from
its beginning at each look, and keep all of it as one result."""

import select
import struct
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
from psycopg import pq
from psycopg.conninfo import make_conninfo

from triggers.sources.databases.pgoutput import CODEC, EPOCH
from triggers.sources.databases.values import STYLE

SELECT_AT_MOST = 0.2  # seconds: TLS may hold bytes that the socket no longer announces
SERVER_WAITS = "30s"  # for a sign of life of ours, before it frees the slot
OPTIONS = {
    "wal_sender_timeout": SERVER_WAITS,
    **STYLE,
    "statement_timeout": "0",
    "idle_session_timeout": "0",
}
KEEPALIVE = {
    "connect_timeout": 10,
    "keepalives_idle": 20,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
UTF8 = "UTF8"  # as PostgreSQL names it
DATA, ALIVE, STATUS = b"w", b"k", b"r"
NOTHING_YET, ENDED = 0, -1
NOT_IN_PREREQUISITE_STATE = "55000"


@dataclass(frozen=True, kw_only=True)
class System:
    """A database cluster, and how often it was promoted."""

    id: str
    timeline: int
    lsn: int
    database: str


@dataclass(frozen=True)
class Frame:
    """A message of the output plugin."""

    lsn: int
    data: bytes


def lsn_of(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def lsn_text(lsn: int) -> str:
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def with_options(conninfo: str, name: str, options: Mapping[str, str]) -> str:
    said = " ".join(f"-c {key}={value}" for key, value in options.items())
    return make_conninfo(conninfo, application_name=name, client_encoding="utf8", options=said, **KEEPALIVE)


def use_own_encoding(connection: psycopg.Connection[Any]) -> str:
    """Let the server send texts as they are stored, and return the codec of them. It converts none, so that it does not fail at a
    byte that has no equivalent in UTF-8."""
    own = connection.info.parameter_status("server_encoding") or UTF8
    if own == UTF8:
        return CODEC
    connection.pgconn.exec_(f"SET client_encoding TO {own}".encode())
    try:
        codec = connection.info.encoding
    except psycopg.NotSupportedError:  # Python has no codec of it
        use_utf8(connection)
        return CODEC
    return CODEC if own == "SQL_ASCII" else codec  # bytes of any kind


def use_utf8(connection: psycopg.Connection[Any]) -> None:
    if connection.info.parameter_status("client_encoding") != UTF8:
        connection.pgconn.exec_(b"SET client_encoding TO UTF8")


class Wire:
    """psycopg.Error if the connection breaks."""

    def __init__(self, conninfo: str, name: str) -> None:
        chosen = with_options(conninfo, name, OPTIONS)
        self.connection = psycopg.connect(make_conninfo(chosen, replication="database"), autocommit=True)
        self.heard_at = time.monotonic()
        self.codec = CODEC  # of the texts in frames
        self.seen = 0  # the server has nothing for us before this place
        self.reply_wanted = False
        self.skipped: list[
            str
        ] = []  # the server's message about changes that it cannot decode (PostgreSQL 18), instead of an error
        self.connection.add_notice_handler(self._heed)

    @property
    def pgconn(self) -> pq.abc.PGconn:
        return self.connection.pgconn

    def identify(self) -> System:
        id, timeline, lsn, database = self.connection.execute("IDENTIFY_SYSTEM").fetchall()[0]
        return System(id=id, timeline=timeline, lsn=lsn_of(lsn), database=database)

    def history(self, timeline: int) -> dict[int, int]:
        """Where each earlier timeline ended."""
        if timeline == 1:
            return {}
        [(_, content)] = self.connection.execute(f"TIMELINE_HISTORY {int(timeline)}").fetchall()
        text = content.decode(errors="replace") if isinstance(content, bytes) else str(content)
        lines = [line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")]
        return {int(words[0]): lsn_of(words[1]) for words in lines}

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Both names have letters, digits and underscores alone."""
        self.codec = use_own_encoding(self.connection)
        options = f"proto_version '1', publication_names '{publication}', messages 'true'"
        command = f"START_REPLICATION SLOT {slot} LOGICAL {lsn_text(lsn)} ({options})"
        result = self.pgconn.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise psycopg.OperationalError(result.get_error_message())
        self.pgconn.nonblocking = 1
        self.heard_at = time.monotonic()

    def receive(self, wait: float) -> Frame | None:
        """The next message, waiting at most so many seconds."""
        until = time.monotonic() + wait
        while True:
            while (raw := self._take()) is not None:
                self.heard_at = time.monotonic()
                if frame := self._frame(raw):
                    return frame
            if (left := until - time.monotonic()) <= 0:
                return None
            select.select([self.pgconn.socket], [], [], min(left, SELECT_AT_MOST))

    def tell(self, lsn: int, *, ask: bool = False) -> None:
        """Report to the server that everything before this place is recorded; `ask`: request an answer."""
        now = (datetime.now(UTC) - EPOCH) // timedelta(microseconds=1)
        self.pgconn.put_copy_data(STATUS + struct.pack(">QQQqB", lsn, lsn, lsn, now, ask))
        self.pgconn.flush()
        self.reply_wanted = False

    @property
    def silence(self) -> float:
        return time.monotonic() - self.heard_at

    def close(self) -> None:
        self.connection.close()

    def _heed(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.sqlstate == NOT_IN_PREREQUISITE_STATE:
            self.skipped.append(f"{notice.message_primary}: {notice.message_detail}")

    def _frame(self, raw: bytes) -> Frame | None:
        if raw[:1] == DATA:
            lsn, _, _ = struct.unpack_from(">QQq", raw, 1)
            return Frame(lsn, raw[25:])
        if raw[:1] == ALIVE:
            end, _, wants = struct.unpack_from(">QqB", raw, 1)
            self.seen, self.reply_wanted = end, self.reply_wanted or bool(wants)
        return None

    def _take(self) -> bytes | None:
        found, data = self.pgconn.get_copy_data(1)
        if found == NOTHING_YET:
            self.pgconn.consume_input()
            found, data = self.pgconn.get_copy_data(1)
        if found > 0:
            return bytes(data)
        if found == NOTHING_YET:
            return None
        result = self.pgconn.get_result() if found == ENDED else None
        if result and result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError((result or self.pgconn).get_error_message())
