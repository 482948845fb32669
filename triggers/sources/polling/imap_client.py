"""A connection to an IMAP server (RFC 9051) that is bounded in time and in bytes, at a public address."""

import imaplib
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings

from agents.guards.addresses import Refused, find_address, networks_of
from triggers.sources.runner import SourceError

ANSWER_SECONDS = 15.0  # for each piece of an answer
MOST_LINE = 8 * 2**20  # bytes without an end of line, such as the numbers of a million messages
PIECE = 65_536
UID = re.compile(rb"\bUID (\d+)")
SIZE = re.compile(rb"\bRFC822\.SIZE (\d+)")
NUMBER = re.compile(rb"\d+")


@dataclass(frozen=True, kw_only=True)
class Server:
    host: str
    port: int
    tls: str  # "tls", "starttls" or "none"


@dataclass(frozen=True, kw_only=True)
class Mailbox:
    """A selected mailbox. UIDs hold as long as its `validity` does."""

    validity: int
    next_uid: int


class Client(imaplib.IMAP4):
    """imaplib on a connection of ours: its reads end with the time or the bytes of the session."""

    def __init__(self, server: Server, *, seconds: float, most_bytes: int) -> None:
        self.server = server
        self.until = time.monotonic() + seconds
        self.bytes_left = most_bytes
        self.received = bytearray()
        super().__init__(server.host, server.port)
        if server.tls == "starttls":
            self.starttls(_tls())
            if self.received:
                raise self.abort("the server spoke before TLS")

    def open(self, host: str = "", port: int = 143, timeout: float | None = None) -> None:
        self.host, self.port = host, port
        self.sock = _connected(self.server, self._seconds_left())

    def read(self, size: int) -> bytes:
        while len(self.received) < size:
            self._receive()
        return self._taken(size)

    def readline(self) -> bytes:
        begin = 0
        while (end := self.received.find(b"\n", begin)) < 0:
            begin = len(self.received)
            if begin > MOST_LINE:
                raise self.abort("the server sends a line without an end")
            self._receive()
        return self._taken(end + 1)

    def send(self, data: Any) -> None:
        self.sock.settimeout(self._seconds_left())
        self.sock.sendall(data)

    def shutdown(self) -> None:
        connection: socket.socket | None = vars(self).get("sock")  # none if it could not connect
        if connection:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def _receive(self) -> None:
        self.sock.settimeout(self._seconds_left())
        piece = self.sock.recv(PIECE)
        if not piece:
            raise self.abort("the server has closed the connection")
        self.bytes_left -= len(piece)
        if self.bytes_left < 0:
            raise self.abort("the server sends more than was requested")
        self.received += piece

    def _taken(self, size: int) -> bytes:
        taken = bytes(self.received[:size])
        del self.received[:size]
        return taken

    def _seconds_left(self) -> float:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the session took too long")
        return min(left, ANSWER_SECONDS)


def sign_in(client: Client, user: str, password: str) -> None:
    """Raises SourceError if the server refuses."""
    try:
        if "AUTH=PLAIN" in client.capabilities:
            client.authenticate("PLAIN", lambda _: f"\0{user}\0{password}".encode())
        else:
            client.login(quoted(user), password)
    except client.abort:
        raise
    except (client.error, UnicodeError):
        raise SourceError(
            "The server refuses the user or the password.",
            remedy="Enter the password as the source's secret. Many providers expect an app password, and IMAP to be switched on.",
        ) from None


def sign_in_by_token(client: Client, user: str, token: str) -> bool:
    """Sign in by OAuth (SASL XOAUTH2, of Google and Microsoft); False if the server refuses the token. Raises SourceError if it
    knows no such way."""
    if "AUTH=XOAUTH2" not in client.capabilities:
        raise SourceError(
            "The server takes no tokens (AUTH=XOAUTH2).",
            remedy="Leave Connection empty, and enter a password as the secret.",
        )

    def answer(challenge: bytes) -> bytes:
        # A refusal comes as a challenge with the reason, and ends with an empty answer.
        return b"" if challenge else f"user={user}\1auth=Bearer {token}\1\1".encode()

    try:
        client.authenticate("XOAUTH2", answer)
    except client.abort:
        raise
    except client.error:
        return False
    return True


def select(client: Client, mailbox: str, *, writable: bool) -> Mailbox:
    """Raises SourceError if there is no such mailbox."""
    status, _ = client.select(quoted(mailbox), readonly=not writable)
    validity, next_uid = _number(client, "UIDVALIDITY"), _number(client, "UIDNEXT")
    if status != "OK" or validity is None:
        raise SourceError(f"The server has no mailbox {mailbox}.", remedy="Check its name, such as INBOX.")
    if next_uid is None:  # an old server need not say it
        next_uid = max(search(client, "UID", "*"), default=0) + 1
    return Mailbox(validity=validity, next_uid=next_uid)


def search(client: Client, *criteria: str) -> list[int]:
    """The UIDs of the messages, ascending."""
    found = _answered(client, "SEARCH", *criteria)
    return sorted({int(number) for line in found for number in NUMBER.findall(line)})


def sizes(client: Client, uids: Sequence[int]) -> dict[int, int]:
    """The size of each of these messages that still exists."""
    found = {}
    for line in _answered(client, "FETCH", ",".join(map(str, uids)), "(UID RFC822.SIZE)"):
        uid, size = UID.search(line), SIZE.search(line)
        if uid and size:
            found[int(uid.group(1))] = int(size.group(1))
    return found


def fetch(client: Client, uid: int, most: int) -> bytes | None:
    """The message, or its first `most` bytes, without marking it as read. None: it does not exist any more."""
    status, parts = client.uid("FETCH", str(uid), f"(UID BODY.PEEK[]<0.{max(most, 1)}>)")
    if status != "OK":
        why = b" ".join(part for part in parts if isinstance(part, bytes)).decode("utf-8", "replace")
        raise client.error(f"FETCH: {status} {why[:200]}".strip())
    return next((bytes(part[1]) for part in parts if isinstance(part, tuple)), None)


def mark_read(client: Client, uids: Sequence[int]) -> None:
    client.uid("STORE", ",".join(map(str, uids)), "+FLAGS.SILENT", r"(\Seen)")


def quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _answered(client: Client, command: str, *arguments: str) -> Iterator[bytes]:
    status, lines = client.uid(command, *arguments)
    if status != "OK":
        raise client.error(f"{command}: {status}")
    return (line for line in lines if isinstance(line, bytes))


def _number(client: Client, name: str) -> int | None:
    _, values = client.response(name)
    last = values[-1] if values else None
    return int(last) if isinstance(last, bytes) and last.isdigit() else None


def _connected(server: Server, seconds: float) -> socket.socket:
    try:
        address = find_address(server.host, server.port, networks_of(settings.WAKEFUL_HTTP_NETWORKS))
    except Refused as refused:
        raise SourceError(
            f"The server cannot be called: {refused}.",
            remedy="Servers of your own network must be in WAKEFUL_HTTP_NETWORKS.",
        ) from None
    connection = socket.create_connection((address, server.port), timeout=seconds)
    if server.tls != "tls":
        return connection
    try:
        return _tls().wrap_socket(connection, server_hostname=server.host)
    except BaseException:
        connection.close()
        raise


@cache
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()
