"""Record requests that `Web` refuses as a view would: a log line, and a count on the page of the source."""

import re
import time

import structlog
from django.http import HttpRequest

from config.web.clients import address_of
from triggers.sources.webhooks.refusals import note_refused

log = structlog.get_logger(__name__)

LINES = 5  # per second, because strangers decide how many requests are refused
PATH_CHARACTERS = 200
HOOK = re.compile(r"/hooks/([-\w]+)/?|/ping/([-\w]+)/.*")
SECRET = re.compile(r"^(/approvals/|/ping/[^/]+/).+")


class Lines:
    """Limits the log lines, and counts refusals without a line since the last one."""

    def __init__(self) -> None:
        self._second = 0
        self._written = 0
        self._left_out = 0

    def take(self, second: int) -> int | None:
        """The number of refusals left out before this one; None: leave this one out as well."""
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= LINES:
            self._left_out += 1
            return None
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


lines = Lines()


def log_refusal(request: HttpRequest, status: int, reason: str) -> None:
    left_out = lines.take(int(time.monotonic()))
    if left_out is None:
        return
    path = SECRET.sub(r"\1…", request.path)[:PATH_CHARACTERS]
    more = {"left_out": left_out} if left_out else {}
    log.warning("web.refused", path=path, status=status, reason=reason, client=address_of(request), **more)


def source_of(request: HttpRequest) -> str:
    """The slug of the source that a delivery is sent to, or ""."""
    found = HOOK.fullmatch(request.path)
    return (found[1] or found[2]) if found else ""


def note_refusal(request: HttpRequest, status: int, reason: str) -> None:
    """Call it in a thread: it uses the database."""
    user_agent = request.headers.get("User-Agent", "")
    note_refused(source_of(request), reason=reason, status=status, user_agent=user_agent)
