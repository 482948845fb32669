"""Ask for a list over HTTP, without load where nothing has changed (ETag, Last-Modified) and with the server's own pause."""

import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from runs.network.fetching import FetchResponse, Limits, NotFetched, Request, fetch
from runs.network.outgoing import what_is_wrong_with
from runs.network.posting import pause_of
from triggers.sources.continuity import Gap, Reason
from triggers.sources.polling.novelty import Item, Memory, everything, find_new
from triggers.sources.polling.poller import NEW, SECONDS, Polled, PollingReader, PollSettings
from triggers.sources.runner import BATCH, Poison, Received, SourceError
from triggers.sources.settings import InvalidSettings, header_name, server_of, setting

REQUEST_SECONDS = 20.0
OPEN_FOR, MISSED = timedelta(hours=1), 1.5  # a gap, after the last poll that found it; in polls, if that is longer
TURNOVER = (
    "No item of the last poll was left: items may have come and gone between the two polls, or the list gives its items other ids "
    "at every fetch. Poll more often, or take the id from another field, or let items be known by their content."
)
BY_ID, BY_CONTENT = "id", "content"
GUESSED = (
    "An earlier version took this list for one that gives its items other ids at every fetch. They are known by their content, and an "
    "item with known content makes no event. Choose “content” as what items are known by, and “id” after a poll if that is wrong."
)


def address(value: str) -> str:
    wrong = what_is_wrong_with(value) or ("it has a user or a password" if "@" in urlsplit(value).netloc else "")
    return f"must be an address such as https://example.org/: {wrong}" if wrong else ""


@dataclass(frozen=True, kw_only=True)
class AddressSettings:
    """The address to fetch, and how the secret is sent with the request."""

    url: str = setting(
        "",
        "Address",
        "What is fetched; it begins with https:// or http://.",
        check=address,
        is_first=True,
        secret_goes_to=server_of,
    )
    secret_header: str = setting(
        "Authorization",
        "Secret header",
        "The header that carries the source's secret, if it has one.",
        check=header_name,
    )
    secret_prefix: str = setting("Bearer ", "Before the secret", "Text before the secret in its header.")

    def __post_init__(self) -> None:
        if wrong := address(self.url):
            raise InvalidSettings({"url": wrong})


@dataclass(frozen=True, kw_only=True)
class HttpSettings(AddressSettings, PollSettings):
    """Where the list is, when it is polled, and what an item is known by."""

    known_by: str = setting(
        BY_ID,
        "Items are known by",
        "“content” for a list that gives its items other ids at every fetch: then an item with known content makes no event.",
        choices=(BY_ID, BY_CONTENT),
    )

    @property
    def is_by_content(self) -> bool:
        return self.known_by == BY_CONTENT


@dataclass
class Asking:
    """The requests of one poll, which share its time."""

    settings: Any  # AddressSettings with a `pause`
    secret: str
    most_bytes: int
    accept: str
    remedy: str = (
        "Enter the secret that the server expects, and check the header that carries it."  # if it refuses the secret
    )

    def __post_init__(self) -> None:
        self.until = time.monotonic() + SECONDS

    def ask(self, url: str, validators: Mapping[str, str] | None = None) -> FetchResponse | None:
        """None: nothing has changed since the validators. Raises SourceError."""
        answer = self.send(Request(url=url, headers=conditions(validators or {})))
        if answer.status == HTTPStatus.NOT_MODIFIED and validators:
            return None
        return self.accepted(answer)

    def send(self, request: Request) -> FetchResponse:
        """The answer to the request with the secret, whatever its status. Raises SourceError."""
        seconds = min(REQUEST_SECONDS, self.until - time.monotonic())
        if seconds <= 0:
            raise SourceError(f"The poll took longer than {SECONDS:g} s.", remedy="Poll fewer pages.")
        private = {}
        if self.secret and self.settings.secret_header:
            private[self.settings.secret_header] = self.settings.secret_prefix + self.secret
        sent = replace(request, headers={"Accept": self.accept, **request.headers}, private=private)
        try:
            return fetch(sent, Limits(seconds=seconds, bytes=self.most_bytes))
        except NotFetched as error:
            remedy = "Addresses of your own network must be in WAKEFUL_HTTP_NETWORKS." if "public" in str(error) else ""
            raise SourceError(f"The address cannot be fetched: {error}", remedy=remedy) from None

    def accepted(self, answer: FetchResponse, *statuses: int) -> FetchResponse:
        """The answer, which has one of these statuses; without any, 200. Raises SourceError."""
        if answer.status not in (statuses or (HTTPStatus.OK,)):
            raise _refused(answer, self.settings, self.remedy)
        return answer

    def expect(self, url: str) -> FetchResponse:
        """The answer, which cannot be that nothing has changed."""
        answer = self.ask(url)
        assert answer is not None  # noqa: S101  (without validators)
        return answer


class ListReader(PollingReader):
    """Reads a list whose items stay on it for a while."""

    @abstractmethod
    def message(self, item: Item, id: str) -> Received | Poison:
        """The event of a new item."""

    def news(self, items: Sequence[Item], state: dict[str, Any], answer: FetchResponse | None = None) -> Polled:
        """The new ones among these, the oldest first. The validators of the answer are kept unless some are left."""
        validators = {"validators": validators_of(answer)} if answer else {}
        if not items:  # such as a feed that is being written: what was seen is still known
            return Polled(state={**state, **validators})
        if "memory" not in state and self.settings.begin_with == NEW:
            return Polled(state={**state, **validators, "memory": everything(items).dump()})
        memory = Memory.load(state["memory"]) if "memory" in state else Memory()
        found = find_new(items, memory, most=BATCH, is_by_content=self.settings.is_by_content)
        messages = [self.message(item, found.id_of(item)) for item in found.items]
        if found.is_by_content and not self.settings.is_by_content:
            messages.append(Poison(id="known by content", reason=GUESSED))
        kept = {"validators": {}} if found.has_more else validators
        return Polled(
            state={**state, **kept, "memory": found.memory.dump()},
            messages=messages,
            gaps=[self.gap(Reason.UNKNOWN, TURNOVER)] if found.is_turnover else [],
            has_more=found.has_more,
        )

    def gap(self, reason: Reason, detail: str) -> Gap:
        """A list that has it at each poll has one, not one for each of them."""
        open_for = max(OPEN_FOR, self.settings.pause * MISSED)
        return Gap(stream=self.assignment.slug, reason=reason, detail=detail, open_for=open_for)


def conditions(validators: Mapping[str, str]) -> dict[str, str]:
    names = {"etag": "If-None-Match", "last-modified": "If-Modified-Since"}
    return {names[name]: value for name, value in validators.items() if name in names}


def validators_of(answer: FetchResponse) -> dict[str, str]:
    """The validators to send with the next request for the same address."""
    found = {name: answer.headers[name] for name in ("etag", "last-modified") if name in answer.headers}
    return {name: value for name, value in found.items() if value.isprintable() and len(value) <= 1_000}


def _refused(answer: FetchResponse, settings: Any, remedy_of_secret: str) -> SourceError:
    status = answer.status
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else ""
    remedy = ""
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        remedy = remedy_of_secret
    elif status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        remedy = "Check the address, or disable the source if it is gone."
    pause = pause_of(answer.headers.get("retry-after", ""))
    # An error of the request is the same in a minute: ask no more often than usual.
    if pause is None and 400 <= status < 500:
        pause = settings.pause
    return SourceError(f"The server answers {status} {phrase}".rstrip() + ".", remedy=remedy, retry_after=pause)
