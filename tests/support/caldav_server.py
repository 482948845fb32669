"""A CalDAV server with one account and one calendar, which gives the shapes of Radicale and of the RFCs (4791, 6578)."""

from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import icalendar
import recurring_ical_events  # type: ignore[import-untyped]

from tests.support.answering import answering

D, C, S = "{DAV:}", "{urn:ietf:params:xml:ns:caldav}", "{http://calendarserver.org/ns/}"
OPEN = (
    '<?xml version="1.0" encoding="utf-8"?><d:multistatus xmlns:d="DAV:" xmlns:c="urn:ietf:params:xml:ns:caldav" '
    'xmlns:s="http://calendarserver.org/ns/">'
)
WORK, HOME = "/ada/office/", "/ada/"
FAR = timedelta(days=3_650)


class CalDavServer:
    """`has_sync`, `has_tag`: what it offers. `page`: the most changes, `part`: the most events of one answer."""

    def __init__(self) -> None:
        self.authorization = "Basic " + b64encode(b"ada:app-password").decode()
        self.events: dict[str, bytes] = {}
        self.log: list[str] = []  # a name for each change
        self.oldest = 0  # the first change that a token may name
        self.has_sync = self.has_tag = True
        self.page: int | None = None
        self.part: int | None = None
        self.unreadable: set[str] = set()
        self.failing: set[str] = set()  # their data is answered with 503
        self.home = HOME
        self.answer: tuple[int, bytes, dict[str, str]] | None = None  # instead of any other
        self.asked: list[tuple[str, str, str]] = []  # method, path, and the name of the request's element
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    def url(self, path: str = WORK) -> str:
        return f"http://127.0.0.1:{self.server.server_port}{path}"

    def put(self, name: str, calendar: bytes) -> None:
        self.events[name] = calendar
        self.log.append(name)

    def delete(self, name: str) -> None:
        del self.events[name]
        self.log.append(name)

    def forget(self) -> None:
        """No token that was given is known any more."""
        self.log.append("")
        self.oldest = len(self.log)

    @property
    def requests(self) -> list[str]:
        """The kinds of the requests since this was read last, which are forgotten then."""
        found = [kind for _, _, kind in self.asked]
        self.asked.clear()
        return found

    def replied(self, method: str, path: str, depth: str, root: ElementTree.Element) -> tuple[int, str]:
        kind = root.tag.rpartition("}")[2]
        if kind == "propfind":
            below = [self._about(WORK)] if path == HOME and depth == "1" else []
            return 207, OPEN + "".join([self._about(path), *below]) + "</d:multistatus>"
        if path != WORK or method != "REPORT":
            return 404, ""
        if kind == "sync-collection":
            return self._changes(root)
        wants_data = root.find(f".//{C}calendar-data") is not None
        if kind == "calendar-multiget":
            names = [(each.text or "").rpartition("/")[2] for each in root.findall(f"{D}href")]
            return 207, OPEN + "".join(self._event(name, wants_data) for name in names) + "</d:multistatus>"
        span = root.find(f".//{C}time-range")
        assert span is not None
        names = [name for name in self.events if self._is_within(name, span.attrib)]
        cut = ""
        if self.part is not None and len(names) > self.part:
            names = names[: self.part]
            cut = f"<d:response><d:href>{WORK}</d:href><d:status>HTTP/1.1 507 Insufficient Storage</d:status></d:response>"
        return 207, OPEN + "".join(self._event(name, wants_data) for name in names) + cut + "</d:multistatus>"

    def _about(self, path: str) -> str:
        home = f"<c:calendar-home-set><d:href>{self.home}</d:href></c:calendar-home-set>"
        kind, more = (
            "<d:collection/>",
            f"<d:current-user-principal><d:href>{HOME}</d:href></d:current-user-principal>{home}",
        )
        if path == WORK:
            kind += "<c:calendar/>"
            more += "<d:displayname>Work &amp; more</d:displayname>"
            more += f"<d:sync-token>{self._token(len(self.log))}</d:sync-token>" if self.has_sync else ""
            more += f"<s:getctag>{len(self.log)}</s:getctag>" if self.has_tag else ""
        return (
            f"<d:response><d:href>{path}</d:href><d:propstat><d:prop><d:resourcetype>{kind}</d:resourcetype>{more}</d:prop>"
            "<d:status>HTTP/1.1 200 OK</d:status></d:propstat><d:propstat><d:prop><d:owner/></d:prop>"
            "<d:status>HTTP/1.1 404 Not Found</d:status></d:propstat></d:response>"
        )

    def _changes(self, root: ElementTree.Element) -> tuple[int, str]:
        token = root.findtext(f"{D}sync-token") or ""
        since = int(token.rpartition("/")[2] or 0)
        if not self.has_sync or not self.oldest <= since <= len(self.log):
            return 403, '<?xml version="1.0"?><d:error xmlns:d="DAV:"><d:valid-sync-token/></d:error>'
        until = min(since + self.page, len(self.log)) if self.page else len(self.log)
        names = dict.fromkeys(self.log[since:until])
        cut = f"<d:response><d:href>{WORK}</d:href><d:status>HTTP/1.1 507 Insufficient Storage</d:status></d:response>"
        answers = "".join(self._event(name, False) for name in names) + (cut if until < len(self.log) else "")
        return 207, f"{OPEN}{answers}<d:sync-token>{self._token(until)}</d:sync-token></d:multistatus>"

    def _event(self, name: str, has_data: bool) -> str:
        href = f"<d:href>{escape(WORK + name)}</d:href>"
        if name not in self.events:
            return f"<d:response>{href}<d:status>HTTP/1.1 404 Not Found</d:status></d:response>"
        if has_data and name in self.failing:
            return f"<d:response>{href}<d:status>HTTP/1.1 503 Service Unavailable</d:status></d:response>"
        body = self.events[name]
        etag = f'<d:getetag>"{sha256(body).hexdigest()[:16]}"</d:getetag>'
        is_given = has_data and name not in self.unreadable
        data = f"<c:calendar-data>{escape(body.decode())}</c:calendar-data>" if is_given else ""
        return (
            f"<d:response>{href}<d:propstat><d:prop>{etag}{data}<d:resourcetype/></d:prop><d:status>HTTP/1.1 200 OK</d:status>"
            "</d:propstat></d:response>"
        )

    def _is_within(self, name: str, span: dict[str, str]) -> bool:
        start, end = (
            datetime.strptime(span[each], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if each in span else None
            for each in ("start", "end")
        )
        assert start
        try:
            calendar = icalendar.Calendar.from_ical(self.events[name])
            return bool(recurring_ical_events.of(calendar).between(start, end or start + FAR))
        except Exception:  # the library raises what it likes on a calendar that is broken
            return True

    def _token(self, number: int) -> str:
        return f"http://example.com/sync/{number}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                root = ElementTree.fromstring(body)  # noqa: S314  (of ours)
                site.asked.append((self.command, self.path, root.tag.rpartition("}")[2]))
                if site.answer:
                    status, text, headers = site.answer
                elif self.headers.get("Authorization") != site.authorization:
                    status, text, headers = 401, b"", {"WWW-Authenticate": 'Basic realm="test"'}
                else:
                    status, said = site.replied(self.command, self.path, self.headers.get("Depth", "infinity"), root)
                    text, headers = said.encode(), {"Content-Type": "application/xml; charset=utf-8"}
                with suppress(OSError):  # the caller has gone
                    self.send_response(status)
                    for name, value in headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(text)))
                    self.end_headers()
                    self.wfile.write(text)

            do_PROPFIND = do_REPORT = answer

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler


@contextmanager
def serving_caldav() -> Iterator[CalDavServer]:
    site = CalDavServer()
    with answering(site.server):
        yield site
