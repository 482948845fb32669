"""Requests of a poll to the API of a connection's provider. The token goes to the provider's hosts alone, by TLS."""

import json
import re
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

import httpx2 as httpx

from agents.exceptions import AgentError
from agents.guards.foreign_text import storable_text
from agents.guards.http import is_allowed, is_private
from agents.kernel.connecting import Lease
from runs.connections.lease import lease, to_its_end
from runs.network.fetching import FetchResponse, Limits, NotFetched, Request, fetch
from runs.network.posting import pause_of
from triggers.sources.polling.poller import SECONDS
from triggers.sources.runner import SourceError

CONNECTION = re.compile(r"[a-z0-9_-]{1,100}")
REQUEST_SECONDS = 20.0
MOST_BYTES = 16 * 2**20  # of an answer
LONGEST = 300  # characters of what a provider says of an error
BUSY = ("rateLimitExceeded", "userRateLimitExceeded", "quotaExceeded")  # of Google, with 403
PAUSE_IF_BUSY = timedelta(minutes=1)


def connection_named(value: str) -> str:
    return "" if not value or CONNECTION.fullmatch(value) else "must be the name of a connection, or empty"


def leased(connection: str, *, refused: str = "") -> Lease:
    """Raises SourceError."""
    try:
        return to_its_end(partial(lease, connection, refused=refused))
    except AgentError as error:
        raise SourceError(f"{error}.", remedy="Open the connection in the admin, and connect or test it.") from None


class TooLarge(SourceError):
    """An answer has more bytes than the request allows."""


class Account:
    """The requests of one poll, which share its time. A token that is refused is renewed once."""

    def __init__(self, connection: str, *, pause: timedelta, remedy: str) -> None:
        self.connection, self.pause, self.remedy = connection, pause, remedy
        self.until = time.monotonic() + SECONDS
        self.lease: Lease | None = None

    def ask(
        self,
        url: str,
        parameters: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        allowed: Collection[int] = (),
        most_bytes: int = MOST_BYTES,
        method: str = "GET",
        content: bytes = b"",
    ) -> FetchResponse:
        """The answer, which has status 200 or one of those that are `allowed`. Raises SourceError."""
        address = httpx.URL(url)
        if parameters:
            address = address.copy_merge_params(dict(parameters))
        request = Request(url=str(address), method=method, content=content, headers=dict(headers or {}))
        self.lease = self.lease or leased(self.connection)
        answer = self._sent(request, self.lease, most_bytes)
        if answer.status == HTTPStatus.UNAUTHORIZED:
            self.lease = leased(self.connection, refused=self.lease.token)
            answer = self._sent(request, self.lease, most_bytes)
        if answer.status != HTTPStatus.OK and answer.status not in allowed:
            raise self._refused(answer)
        return answer

    def json(self, url: str, parameters: Mapping[str, str] | None = None, **more: Any) -> tuple[int, dict[str, Any]]:
        """The status and the object of an answer. Raises SourceError."""
        answer = self.ask(url, parameters, **more)
        found = _object_of(answer.body)
        if found is None and answer.status == HTTPStatus.OK:
            raise SourceError("The provider's answer is no object in JSON.")
        return answer.status, found or {}

    def _sent(self, request: Request, lease: Lease, most: int) -> FetchResponse:
        address = httpx.URL(request.url)
        if not is_allowed(address, lease.hosts) or not is_private(address):
            raise SourceError(
                f"Connection {self.connection} sends its token to {', '.join(lease.hosts)} only, with TLS.",
                remedy="Choose a connection of this provider.",
            )
        seconds = min(REQUEST_SECONDS, self.until - time.monotonic())
        if seconds <= 0:
            raise SourceError(f"The poll took longer than {SECONDS:g} s.")
        sent = replace(request, private={"Authorization": f"Bearer {lease.token}"})
        try:
            return fetch(sent, Limits(seconds=seconds, bytes=most, redirects=0))
        except NotFetched as error:
            if "larger than" in str(error):
                raise TooLarge(f"The provider sends too much: {error}") from None
            raise SourceError(f"The provider cannot be reached: {error}") from None

    def _refused(self, answer: FetchResponse) -> SourceError:
        reason, said = _said(answer.body)
        after = pause_of(answer.headers.get("retry-after", ""))
        is_busy = answer.status == HTTPStatus.TOO_MANY_REQUESTS or reason in BUSY
        text = f"The provider answers {answer.status}" + (f": {said}" if said else "")
        if is_busy or answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return SourceError(text, retry_after=after or (PAUSE_IF_BUSY if is_busy else None))
        # An error of the request is the same in a minute: ask no more often than usual.
        return SourceError(text, remedy=self.remedy, retry_after=after or self.pause)


def pages(
    ask: Callable[[str], tuple[int, dict[str, Any]]],
    first: str,
    items: str,
    following: Callable[[dict[str, Any]], str],
    most: int,
) -> tuple[list[dict[str, Any]], dict[str, Any]] | None:
    """The items of all pages, and the last page. None: there are more than `most` pages, or the first is refused by an allowed
    status."""
    found: list[dict[str, Any]] = []
    url = first
    for _ in range(most):
        status, page = ask(url)
        if status != HTTPStatus.OK:
            return None
        found += [one for one in page.get(items) or () if isinstance(one, dict)]
        url = following(page)
        if not url:
            return found, page
    return None


def _object_of(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _said(body: bytes) -> tuple[str, str]:
    """The reason and the words of an error, as Google and Microsoft give them."""
    error = (_object_of(body) or {}).get("error")
    if not isinstance(error, dict):
        return "", ""
    details = error.get("errors")
    first = details[0] if isinstance(details, list) and details and isinstance(details[0], dict) else {}
    return str(first.get("reason", "")), storable_text(str(error.get("message", "")))[:LONGEST]
