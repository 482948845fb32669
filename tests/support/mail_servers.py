"""Servers with the addresses and answers of Gmail's and Graph's references, for what is written to a mailbox: labels and drafts."""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from agents import mail_accounts
from agents.guards.addresses import networks_of
from agents.kernel import connecting
from agents.kernel.connecting import Lease
from tests.support.answering import answering

TOKEN = "token-of-mail-1234"
MESSAGE = "<one@example.org>"
DATA: dict[str, Any] = {
    "from": {"name": "Anna", "address": "anna@example.org"},
    "subject": "Grüße: when do you come?",
    "text": "Do you come on Friday?",
    "message_id": MESSAGE,
    "thread_id": "<zero@example.org>",
    "references": ["<zero@example.org>"],
    "is_automatic": False,
    "list_id": "",
}


class MailServer:
    """A mailbox with a message. `statuses` are the answers to requests that write, before it carries them out."""

    def __init__(self) -> None:
        self.message: dict[str, Any] = {"from": "Anna <anna@example.org>", "reply_to": "", "id": MESSAGE}
        self.copies = 1
        self.threads = {"m0": "t1", "m1": "t1"}
        self.statuses: list[int] = []
        self.asked: list[tuple[str, str]] = []
        self.tokens: set[str] = set()
        self.labels: dict[str, str] = {}
        self.on_message: list[str] = []
        self.drafts: list[dict[str, Any]] = []
        self.version = 1
        self.owner = ""  # of the connection
        self.leased: list[str] = []

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, headers: Any) -> tuple[int, Any]:
        raise NotImplementedError

    @property
    def written(self) -> list[tuple[str, str]]:
        return [(method, path) for method, path in self.asked if method != "GET"]

    def handler(self) -> type[BaseHTTPRequestHandler]:
        box = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "null")
                box.asked.append((self.command, parts.path))
                box.tokens.add(self.headers["Authorization"])
                if self.command != "GET" and box.statuses and (status := box.statuses.pop(0)) != 200:
                    found: Any = {"error": {"code": status}}
                else:
                    status, found = box.answer(self.command, parts.path, parse_qs(parts.query), body, self.headers)
                content = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_POST = do_PATCH = do_GET

            def log_message(self, *_: Any) -> None: ...

        return Handler


class GmailServer(MailServer):
    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, headers: Any) -> tuple[int, Any]:
        match (method, path):
            case "GET", "/messages":
                is_there = query["q"] == [f"rfc822msgid:{self.message['id'][1:-1]}"]
                ids = [{"id": f"m{number}", "threadId": "t1"} for number in range(self.copies * is_there)]
                return 200, {"messages": ids, "resultSizeEstimate": len(ids)} if ids else {"resultSizeEstimate": 0}
            case "GET", "/labels":
                own = [{"id": id, "name": name, "type": "user"} for name, id in self.labels.items()]
                return 200, {"labels": [{"id": "TRASH", "name": "TRASH", "type": "system"}, *own]}
            case "POST", "/labels":
                if body["name"] in self.labels:
                    return 409, {"error": {"code": 409}}
                self.labels[body["name"]] = f"Label_{len(self.labels)}"
                return 200, {"id": self.labels[body["name"]], **body}
            case "POST", "/messages/m0/modify":
                self.on_message = [*dict.fromkeys([*self.on_message, *body["addLabelIds"]])]
                return 200, {"id": "m0", "threadId": "t1", "labelIds": self.on_message}
            case "POST", "/drafts":
                self.drafts.append(body["message"])
                return 200, {"id": "r1", "message": {"id": "m9", "threadId": body["message"]["threadId"]}}
        names = {"Message-ID": self.message["id"], "From": self.message["from"], "Reply-To": self.message["reply_to"]}
        shown = [{"name": name, "value": value} for name, value in names.items() if value]
        id = path.split("/")[-1]
        return 200, {"id": id, "threadId": self.threads[id], "labelIds": ["INBOX"], "payload": {"headers": shown}}

    def draft(self) -> EmailMessage:
        [draft] = self.drafts
        found = message_from_bytes(base64.urlsafe_b64decode(draft["raw"]), policy=default)
        assert isinstance(found, EmailMessage)
        return found


class GraphServer(MailServer):
    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any, headers: Any) -> tuple[int, Any]:
        assert headers["Prefer"] == 'IdType="ImmutableId"'
        match (method, path):
            case "GET", "/messages":
                is_there = query["$filter"] == [f"internetMessageId eq '{self.message['id']}'"]
                return 200, {"value": [self.shown(f"m/{number}") for number in range(self.copies * is_there)]}
            case "PATCH", "/messages/m%2F0":
                if headers["If-Match"] != f'W/"{self.version}"':
                    return 412, {"error": {"code": "ErrorIrresolvableConflict"}}
                self.on_message, self.version = body["categories"], self.version + 1
                return 200, self.shown("m/0")
            case "POST", "/messages/m%2F0/createReply":
                self.drafts.append(body)
                return 201, {"id": "draft", "isDraft": True}
        return 404, {"error": {"code": "ErrorItemNotFound"}}

    def shown(self, id: str) -> dict[str, Any]:
        address = {"emailAddress": {"name": "Anna", "address": "Anna@example.org"}}
        return {
            "@odata.etag": f'W/"{self.version}"',
            "id": id,
            "internetMessageId": self.message["id"],
            "isDraft": False,
            "conversationId": "c1",
            "from": address,
            "replyTo": [],
            "categories": self.on_message,
        }


@contextmanager
def serving_mail(box: MailServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The connection `mail` is one to this server."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), box.handler())
    host = f"127.0.0.1:{server.server_address[1]}"

    def lease(name: str, /, *, refused: str = "", may_retry: bool = True) -> Lease:
        box.leased.append(name)
        return Lease(token=TOKEN, hosts=[host], networks=networks_of(["127.0.0.0/8"]), owner=box.owner)

    monkeypatch.setattr(connecting._port, "lease", lease)
    monkeypatch.setattr(mail_accounts, "GMAIL" if isinstance(box, GmailServer) else "GRAPH", f"http://{host}")
    with answering(server):
        yield
