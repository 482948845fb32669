"""A small IMAP server with one mailbox (RFC 9051: what a reader of mail needs), which can also behave badly."""

import base64
import re
import socket
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.support.post_office import Server

MESSAGE_SET = re.compile(r"(\d+)(?::(\d+|\*))?")


@dataclass
class Stored:
    raw: bytes
    flags: set[str] = field(default_factory=set)


class ImapServer(Server):
    """`behaviour`: `""`; `silent` after the login, `endless` answers to a search, `huge`: it announces a literal of 10 GB, `talks
    before TLS`."""

    user, password = "anna@example.org", "pass word"

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.validity = 7
        self.messages: dict[int, Stored] = {}
        self.next_uid = 1
        self.behaviour = ""
        self.pause = 0.0  # seconds before each message
        self.guess = 0  # bytes by which the reported sizes are too large
        self.is_old = False  # no message is from the last days
        self.recent = 0  # the first message that is
        self.broken: dict[
            int, str
        ] = {}  # not given: its `body`, `any` of it, none after OK (`empty`), no answer (`hang`), or an end (`drop`)
        self.commands: list[str] = []
        self.oauth = ""  # "AUTH=XOAUTH2"
        self.tokens: Callable[[], Iterable[str]] = tuple
        self.tls = tls
        super().__init__()

    def add(self, raw: bytes) -> int:
        uid, self.next_uid = self.next_uid, self.next_uid + 1
        self.messages[uid] = Stored(raw)
        return uid

    def rebuild(self) -> None:
        """The same messages with other UIDs, as after a restore."""
        kept, self.messages, self.next_uid = list(self.messages.values()), {}, 100
        self.validity += 1
        for message in kept:
            self.add(message.raw)

    def talk(self, peer: socket.socket) -> None:
        if self.tls:
            peer = self.tls.wrap_socket(peer, server_side=True)
        lines = peer.makefile("rb")
        readonly = True

        def say(text: str | bytes) -> None:
            peer.sendall((text.encode() if isinstance(text, str) else text) + b"\r\n")

        say("* OK here")
        for raw in lines:
            tag, _, line = raw.decode().strip().partition(" ")
            self.commands.append(line)
            verb = line.split(" ")[0].upper()
            match verb:
                case "CAPABILITY":
                    say(f"* CAPABILITY IMAP4rev1 AUTH=PLAIN {self.oauth} STARTTLS")
                case "STARTTLS":
                    say(
                        f"{tag} OK begin\r\n* OK too early"
                        if self.behaviour == "talks before TLS"
                        else f"{tag} OK begin"
                    )
                    return
                case "AUTHENTICATE" if line.split(" ")[1] == "XOAUTH2":
                    say("+ ")
                    given = base64.b64decode(next(iter(lines))).decode()
                    if given not in {f"user={self.user}\1auth=Bearer {token}\1\1" for token in self.tokens()}:
                        say("+ " + base64.b64encode(b'{"status":"400"}').decode())
                        assert next(iter(lines)) == b"\r\n"
                        say(f"{tag} NO go away")
                        continue
                case "AUTHENTICATE":
                    say("+ ")
                    given = base64.b64decode(next(iter(lines))).decode()
                    if given != f"\0{self.user}\0{self.password}":
                        say(f"{tag} NO [AUTHENTICATIONFAILED] go away")
                        continue
                    if self.behaviour == "silent":
                        self.gate.wait(30)
                        return
                case "SELECT" | "EXAMINE":
                    if '"INBOX"' not in line:
                        say(f"{tag} NO no such mailbox")
                        continue
                    readonly = verb == "EXAMINE"
                    say(f"* {len(self.messages)} EXISTS\r\n* OK [UIDVALIDITY {self.validity}] valid")
                    say(f"* OK [UIDNEXT {self.next_uid}] next")
                case "UID" if how := self._refused(line):
                    if how == "hang":
                        self.gate.wait(60)
                    if how in ("drop", "hang"):
                        return
                    if how == "empty":
                        say(f"{tag} OK done")
                        continue
                    say(f"{tag} NO [SERVERBUG] Internal error")
                    continue
                case "UID":
                    self._uid(line, say, readonly)
                case "LOGOUT":
                    say(f"* BYE\r\n{tag} OK bye")
                    return
            say(f"{tag} OK done")

    def _refused(self, line: str) -> str:
        _, verb, numbers, *what = line.split(" ", 3)
        named = [self.broken[uid] for uid in self._among(numbers) if uid in self.broken] if verb == "FETCH" else []
        return next((how for how in named if how == "any" or "BODY" in what[0]), "")

    def _uid(self, line: str, say: Callable[[str | bytes], None], readonly: bool) -> None:
        _, verb, what, *rest = line.split(" ", 3)
        if verb == "SEARCH":
            while self.behaviour == "endless":
                say("* SEARCH " + "1 " * 10_000)
            wanted = self._since() if what == "SINCE" else self._among(rest[0])
            say("* SEARCH " + " ".join(map(str, sorted(wanted))))
        elif verb == "STORE" and not readonly:
            for uid in self._among(what):
                self.messages[uid].flags.add(r"\Seen")
        elif verb == "FETCH":
            self._fetch(self._among(what), rest[0], say)

    def _fetch(self, uids: list[int], what: str, say: Callable[[str | bytes], None]) -> None:
        for uid in uids:
            raw = self.messages[uid].raw
            if "RFC822.SIZE" in what:
                say(f"* {uid} FETCH (UID {uid} RFC822.SIZE {len(raw) + self.guess})")
                continue
            self.gate.wait(self.pause)
            most = int(what.rpartition("<0.")[2].partition(">")[0])
            if self.behaviour == "huge":
                say(f"* {uid} FETCH (UID {uid} BODY[]<0> {{{10**10}}}")
                while True:
                    say(b"x" * 100_000)
            if "PEEK" not in what:
                self.messages[uid].flags.add(r"\Seen")
            piece = raw[:most]
            say(f"* {uid} FETCH (UID {uid} BODY[]<0> {{{len(piece)}}}\r\n".encode() + piece + b")")

    def _since(self) -> list[int]:
        return [] if self.is_old else [uid for uid in self.messages if uid >= self.recent]

    def _among(self, numbers: str) -> list[int]:
        """The UIDs in a set; in `6:*` the last message is, whatever its UID (RFC 9051 §9)."""
        found: set[int] = set()
        last = max(self.messages, default=0)
        for first, end in MESSAGE_SET.findall(numbers):
            low, high = sorted((int(first), last if end == "*" else int(end or first)))
            found |= {uid for uid in self.messages if low <= uid <= high}
        return sorted(found)
