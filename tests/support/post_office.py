"""Servers that take mail and webhooks, over real sockets, and behave as a test sets them up: in threads of the test, or each as a
process that can be killed (`ServerProcess`)."""

import base64
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from email import message_from_bytes, policy
from email.message import EmailMessage
from pathlib import Path
from typing import Any, Literal, cast

Manner = Literal[
    "take", "refuse", "later", "silent", "cut", "slow", "hang up", "greylist", "drip", "redirect", "gateway"
]


@dataclass
class Posted:
    """What a webhook receiver got."""

    path: str
    headers: dict[str, str]
    body: bytes


class Server:
    """Listens on a port of its own; each connection has a thread. `manner` may change at any time; `closed` refuses."""

    def __init__(self, port: int = 0) -> None:
        self.manner: Manner = "take"
        self.connections = 0
        self.gate = threading.Event()  # what is silent is silent until then
        self.listening = self._listen(port)
        self.port = self.listening.getsockname()[1]

    def _listen(self, port: int) -> socket.socket:
        listening = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self._accept, args=[listening], daemon=True).start()
        return listening

    def close(self) -> None:
        """As a killed server: connections are refused."""
        with suppress(OSError):
            self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()

    def open(self) -> None:
        self.listening = self._listen(self.port)

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                peer, _ = listening.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=[peer], daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with suppress(OSError, ValueError), peer:
            if self.manner == "hang up":
                return
            self.talk(peer)

    def talk(self, peer: socket.socket) -> None:
        raise NotImplementedError

    def took(self, id: str, content: str) -> None:
        """It takes a letter or the body of a webhook, and has not answered yet."""


class MailServer(Server):
    """Manners: `refuse` the receiver for good, `later` (421), `greylist` (451), `cut` after the letter was taken, `silent` after
    it, `drip` the answer, `slow`."""

    def __init__(self, port: int = 0) -> None:
        self.letters: list[EmailMessage] = []
        self.tokens: Callable[[], Container[str]] | None = (
            None  # those that it accepts (XOAUTH2); None: no one signs in
        )
        self.verbs: list[str] = []  # commands, without what they carry
        super().__init__(port)

    @property
    def url(self) -> str:
        return f"smtp://127.0.0.1:{self.port}/?tls=none&from=wakeful@example.com"

    def talk(self, peer: socket.socket) -> None:
        lines = peer.makefile("rb")

        def say(text: str) -> None:
            peer.sendall(f"{text}\r\n".encode())

        say("220 here" if self.manner != "later" else "421 not now")
        for raw in lines:
            verb = raw.decode().strip().upper()[:4]
            self.verbs.append(verb)
            match verb:
                case "EHLO" if self.tokens:
                    say("250-here")
                    say("250 AUTH LOGIN PLAIN XOAUTH2")
                case "AUTH" if self.tokens:
                    given = base64.b64decode(raw.split()[-1]).decode()
                    if given.removeprefix("user=ada@example.com\1auth=Bearer ").removesuffix("\1\1") in self.tokens():
                        say("235 accepted")
                    else:
                        say("334 " + base64.b64encode(b'{"status":"401","schemes":"bearer","scope":"mail"}').decode())
                        say("535 not accepted" if next(lines) == b"\r\n" else "501 an empty line was expected")
                case "RCPT" if self.manner == "refuse":
                    say("550 no such user <ops@example.com>")
                case "RCPT" if self.manner == "greylist":
                    say("451 come back")
                case "DATA":
                    say("354 go on")
                    if not self._take(lines, say):
                        return
                case "QUIT":
                    say("221 bye")
                    return
                case _:
                    say("250 well")

    def _take(self, lines: object, say: Callable[[str], None]) -> bool:
        content = b""
        for raw in cast("Iterator[bytes]", lines):
            if raw == b".\r\n":
                break
            content += raw.removeprefix(b".") if raw.startswith(b"..") else raw
        letter = message_from_bytes(content, policy=policy.default)
        self.letters.append(letter)
        self.took(str(letter["Message-ID"]), text_of(letter))
        if self.manner == "cut":
            return False
        if self.manner == "slow":
            time.sleep(0.3)
        if self.manner in ("silent", "drip"):
            while self.manner == "drip" and not self.gate.wait(0.05):
                say("250-wait")
            self.gate.wait(60)
            return False
        say("250 taken")
        return True


STATUSES = {"take": 204, "refuse": 410, "later": 503, "slow": 200, "redirect": 302, "gateway": 504, "greylist": 429}


class HookServer(Server):
    """Manners: `refuse` (410), `later` (503), `greylist` (429 with Retry-After), `gateway` (504), `redirect`, `cut` after the body
    was read, `silent` after it, `slow`. What it takes it answers with 200 where it has something to say, else with 204."""

    def __init__(self, port: int = 0) -> None:
        self.posted: list[Posted] = []
        self.says = b""  # the body of its answers
        self.statuses: dict[str, int] = {}  # by manner, instead of its own
        super().__init__(port)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    @property
    def ids(self) -> list[str]:
        return [one.headers["webhook-id"] for one in self.posted]

    def talk(self, peer: socket.socket) -> None:
        lines = peer.makefile("rb")
        if not (request := lines.readline().decode()):
            return  # the sender died
        path = request.split(" ")[1]
        headers = {}
        while (line := lines.readline().decode().strip()) != "":
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        body = lines.read(length := int(headers.get("content-length", -1)))
        if len(body) != length:
            return
        self.posted.append(Posted(path=path, headers=headers, body=body))
        manner = self.manner
        status = 200 if manner == "take" and self.says else STATUSES.get(manner, 0)
        status = self.statuses.get(manner, status)
        if status < 300:
            self.took(headers.get("webhook-id", ""), body.decode())
        if manner == "cut":
            return
        if manner == "silent":
            self.gate.wait(60)
            return
        if manner == "slow":
            time.sleep(0.3)
        more = "Retry-After: 7\r\n" if manner == "greylist" else ""
        more += "Location: http://127.0.0.1:1/\r\n" if manner == "redirect" else ""
        sized = f"Content-Length: {len(self.says)}\r\n"
        peer.sendall(f"HTTP/1.1 {status} x\r\n{more}{sized}Connection: close\r\n\r\n".encode() + self.says)


@contextmanager
def taking_mail() -> Iterator[MailServer]:
    server = MailServer()
    try:
        yield server
    finally:
        server.gate.set()
        server.close()


@contextmanager
def taking_hooks() -> Iterator[HookServer]:
    server = HookServer()
    try:
        yield server
    finally:
        server.gate.set()
        server.close()


def text_of(letter: EmailMessage) -> str:
    return re.sub(r"\r\n", "\n", cast(str, letter.get_content())).strip()


def _said(document: dict[str, Any]) -> str:
    """The text of a signed webhook, or of one for Slack."""
    return str(document.get("data", document)["text"])


# As processes


class ServerProcess:
    """A server in a process of its own. Its manner is a file that it reads each time; what it takes is on disk before it
    answers, so the messages of a killed one are known."""

    def __init__(self, kind: Literal["mail", "hook"], folder: Path) -> None:
        self.kind, self.folder = kind, folder
        folder.mkdir()
        self.behave("take")
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", __name__, self.kind, str(self.folder), str(self.port)]
        self.process = subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        with self.process.stdout as output:
            self.port = int(output.readline())

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def behave(self, manner: Manner) -> None:
        draft = self.folder / "draft"
        draft.write_text(manner)
        draft.rename(self.folder / "manner")

    @property
    def taken(self) -> list[tuple[str, str]]:
        """Id and text of each message, in the order in which they came."""
        log = self.folder / "taken"
        return [tuple(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


def _serve(kind: str, folder: Path, port: int) -> None:
    class OfFiles(MailServer if kind == "mail" else HookServer):  # type: ignore[misc]
        @property
        def manner(self) -> str:
            return (folder / "manner").read_text()

        @manner.setter
        def manner(self, manner: str) -> None:
            pass

        def took(self, id: str, content: str) -> None:
            text = content if kind == "mail" else _said(json.loads(content))
            with (folder / "taken").open("a") as log:
                log.write(json.dumps([id, text]) + "\n")

    print(OfFiles(port).port, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
