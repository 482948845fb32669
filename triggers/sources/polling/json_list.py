import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit, urlunsplit

from runs.api.strict_json import Unreadable, is_storable, parse_json, require_storable
from runs.network.fetching import FetchResponse
from triggers.sources.continuity import Gaps, Reason
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, register
from triggers.sources.polling.conditional_get import Asking, HttpSettings, ListReader, validators_of
from triggers.sources.polling.novelty import Item, Memory, digest, find_new
from triggers.sources.polling.poller import NEW, Polled, Poller
from triggers.sources.runner import BATCH, Assignment, Poison, Reader, Received, SourceError
from triggers.sources.settings import InvalidSettings, json_path, setting
from triggers.sources.webhooks.naming import LONGEST_NAME, event_type, found_at, is_name, subject_at, time_at, value_at

MOST_BYTES = 8 * 2**20  # of a page
MOST_PAGES = 10  # of a poll
MOST_ITEMS = 2_000  # of a page
NEWEST_FIRST, OLDEST_FIRST = "newest first", "oldest first"
LAST_ITEMS = 100  # of a page with more than MOST_ITEMS
UNNAMED_TYPE = "item.received"
LONGEST_CURSOR = 8_000  # characters; it is stored
CUT = (
    f"More than {MOST_PAGES} pages had new items, or a page more than {MOST_ITEMS:,}: older items are not read. Poll more often, or ask "
    "for fewer and larger pages within these limits."
)


def type_name(value: str) -> str:
    return "" if not value or is_name(value) else f"must be at most {LONGEST_NAME} printable characters"


def parameter(value: str) -> str:
    return (
        ""
        if not value or (value.isascii() and value.isprintable() and not set(value) & set(" &=?#"))
        else "must be a name"
    )


@dataclass(frozen=True, kw_only=True)
class JsonListSettings(HttpSettings):
    """Where the items are, what names them, and how the list goes on."""

    items_path: str = setting(
        "",
        "Items in the answer",
        "Path of the list, such as data.items. Empty: the answer is the list.",
        check=json_path,
    )
    id_path: str = setting(
        "id",
        "Id in an item",
        "Path of the id in an item. An item without one is known by its content: a change of it is a new event.",
        check=json_path,
    )
    type: str = setting("", "Type", f"Type of the events. Empty: {UNNAMED_TYPE}.", check=type_name)
    type_path: str = setting(
        "", "Type in an item", "Path of the event's type in an item, if they differ.", check=json_path
    )
    subject_path: str = setting("", "Subject in an item", "Path of the event's subject in an item.", check=json_path)
    time_path: str = setting(
        "", "Time in an item", "Path of a time in an item: RFC 3339, or Unix time.", check=json_path
    )
    order: str = setting(
        NEWEST_FIRST,
        "Order",
        "The order of the items in the answer. Events are recorded the oldest first.",
        choices=(NEWEST_FIRST, OLDEST_FIRST),
    )
    next_path: str = setting(
        "",
        "Next page in the answer",
        "Path of the next page's address or cursor, such as paging.next. Empty: the Link header, if there is one.",
        check=json_path,
    )
    cursor_parameter: str = setting(
        "",
        "Cursor parameter",
        "The query parameter that takes the cursor. Empty: the next page is an address.",
        check=parameter,
    )
    keep_cursor: bool = setting(
        False,
        "Go on at the last cursor",
        "For logs that only grow: the next poll begins at the last page of this one, not at the first page.",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.keep_cursor and not (self.next_path and self.order == OLDEST_FIRST):
            raise InvalidSettings(
                {
                    "keep_cursor": "needs a next page in the answer, and the order “oldest first”: such a log only grows at its end"
                }
            )


@register
class JsonList(Poller[JsonListSettings]):
    name = "json_list"
    label = "JSON list"
    help_text = "Polls a list in JSON over HTTP, such as that of an API. Each new item is an event."
    group = Group.POLLING
    settings_class = JsonListSettings
    in_sight = ("url", "items_path", "id_path")
    secret_label = "Token"  # noqa: S105  (a label)
    gaps = Gaps(
        are_seen=True,
        how="when nothing of the last poll is left in the list, items may have come and gone between the two polls, and when more pages "
        "have new items than are read. How many is not known, and a log that is read by its cursor has no such sign.",
    )
    setup = (
        "Enter the address of the list, with its parameters for filters and for the largest page.",
        "Say where the items are in the answer, and where the id is in an item.",
        "If the API needs a token, enter it as the secret and name the header that carries it.",
    )

    def connect(self, assignment: Assignment[JsonListSettings]) -> Reader:
        settings = assignment.settings
        return JsonListReader(assignment, target=f"{settings.url} {settings.items_path} {settings.id_path}")


@dataclass(frozen=True, kw_only=True)
class Page:
    items: Sequence[Item]
    next_url: str  # empty: it is the last one
    is_cut: bool  # it has more than MOST_ITEMS
    answer: FetchResponse


class JsonListReader(ListReader):
    def poll(self, state: dict[str, Any]) -> Polled:
        asking = Asking(self.settings, self.assignment.secret, most_bytes=MOST_BYTES, accept="application/json")
        return self._read_log(asking, state) if self.settings.keep_cursor else self._read_list(asking, state)

    def message(self, item: Item, id: str) -> Received | Poison:
        value = item.value
        try:
            require_storable(value)
        except Unreadable as reason:
            return Poison(id=id, reason=str(reason), body=json.dumps(value).encode())
        return Received(
            id=id,
            type=event_type(value_at(value, self.settings.type_path)) or self.settings.type or UNNAMED_TYPE,
            subject=subject_at(value, self.settings.subject_path),
            time=time_at(value, self.settings.time_path),
            payload=Payload(data=value),
        )

    def _read_list(self, asking: Asking, state: dict[str, Any]) -> Polled:
        """Read from the first page to one without new items, or to the last page. A page with known items may be
        followed by new ones: after a pinned item, or one that was changed or came late.
        """
        first = asking.ask(self.settings.url, state.get("validators"))
        if first is None:
            return Polled(state=state)
        page = self._page(first)
        items, pages = list(page.items), 1
        while (page.next_url or page.is_cut) and self._goes_on(page, state):
            if pages == MOST_PAGES or page.is_cut:
                return self._cut(items, state, first)
            page = self._page(asking.expect(page.next_url))
            items, pages = [*items, *page.items], pages + 1
        return self.news(self._oldest_first(items), state, first)

    def _goes_on(self, page: Page, state: dict[str, Any]) -> bool:
        if self.settings.order == OLDEST_FIRST or "memory" not in state:
            return True
        # After a cut page no further page can be requested: its last items show whether there are new ones.
        items = page.items[-LAST_ITEMS:] if page.is_cut else page.items
        memory, is_by_content = Memory.load(state["memory"]), self.settings.is_by_content
        return bool(find_new(items, memory, most=len(items), is_by_content=is_by_content).items)

    def _cut(self, items: Sequence[Item], state: dict[str, Any], first: FetchResponse) -> Polled:
        if self.settings.order == OLDEST_FIRST:
            raise SourceError(
                f"The list has more than {MOST_PAGES} pages, or {MOST_ITEMS:,} items on one, and its newest items are at the end.",
                remedy="Ask for the newest first, for larger pages, or let the source go on at the last cursor.",
            )
        polled = self.news(self._oldest_first(items), state, first)
        if "memory" not in state:
            return polled
        # Whether anything of the last poll is left is not known: that is behind the cut.
        return replace(polled, gaps=[self.gap(Reason.SKIPPED, CUT)])

    def _read_log(self, asking: Asking, state: dict[str, Any]) -> Polled:
        """Read one page, from where the last poll ended."""
        url = state.get("cursor") or self.settings.url
        answer = asking.ask(url, state.get("validators"))
        if answer is None:
            return Polled(state=state)
        page = self._page(answer)
        if page.is_cut:
            raise SourceError(
                f"A page of the list has more than {MOST_ITEMS:,} items.", remedy="Ask for smaller pages."
            )
        if "memory" not in state and self.settings.begin_with == NEW:
            return self._passed_over(page, url, state)
        memory = Memory.load(state["memory"]) if "memory" in state else Memory()
        found = find_new(page.items, memory, most=BATCH, is_log=True, is_by_content=self.settings.is_by_content)
        goes_on = bool(page.next_url) and not found.has_more
        return Polled(
            state={
                "cursor": page.next_url if goes_on else url,
                "memory": found.memory.dump(),
                "validators": {} if goes_on or found.has_more else validators_of(answer),
            },
            messages=[self.message(item, found.id_of(item)) for item in found.items],
            # Some logs name a next page for ever.
            has_more=(goes_on and bool(found.items)) or found.has_more,
        )

    def _passed_over(self, page: Page, url: str, state: dict[str, Any]) -> Polled:
        """Skip items that exist before the first poll: page until a page has no unseen item."""
        memory = Memory.load(state["passed"]) if "passed" in state else Memory()
        found = find_new(
            page.items, memory, most=len(page.items), is_log=True, is_by_content=self.settings.is_by_content
        )
        if page.next_url and found.items:
            return Polled(state={"cursor": page.next_url, "passed": found.memory.dump()}, has_more=True)
        return Polled(state={"cursor": page.next_url or url, "memory": found.memory.dump()})

    def _oldest_first(self, items: Sequence[Item]) -> Sequence[Item]:
        return items[::-1] if self.settings.order == NEWEST_FIRST else items

    def _page(self, answer: FetchResponse) -> Page:
        try:
            data = parse_json(answer.body)
        except Unreadable as reason:
            raise SourceError(
                f"The answer is not readable: {reason}.", remedy="Check that the address is that of the list in JSON."
            ) from None
        values = found_at(data, self.settings.items_path)
        if not isinstance(values, list):
            raise SourceError(
                f"The answer has no list at {self.settings.items_path or 'its top'}.",
                remedy="Enter the path of the items in the answer.",
            )
        items = [self._item(value) for value in values[:MOST_ITEMS]]
        next_url, is_cut = self._next_url(data, answer), len(values) > MOST_ITEMS
        return Page(items=items, next_url=next_url, is_cut=is_cut, answer=answer)

    def _item(self, value: Any) -> Item:
        rest = (
            {name: one for name, one in value.items() if name != self.settings.id_path}
            if isinstance(value, dict)
            else value
        )
        content = json.dumps(rest, sort_keys=True)
        return Item(
            id=value_at(value, self.settings.id_path) or f"content:{digest(content)}", content=content, value=value
        )

    def _next_url(self, data: Any, answer: FetchResponse) -> str:
        path, name = self.settings.next_path, self.settings.cursor_parameter
        found = value_at(data, path) if path else answer.links.get("next")
        if not found:
            return ""
        if len(found) > LONGEST_CURSOR or not is_storable(found):
            raise SourceError("The next page has no usable address.", remedy="Check the path of the next page.")
        url = with_parameter(self.settings.url, name, found) if path and name else _joined(answer.url, found)
        if url == answer.url:
            return ""
        if _origin(url) != _origin(self.settings.url):
            raise SourceError(
                "The next page is at another host.", remedy="Enter the address that the API names itself."
            )
        return url


def with_parameter(url: str, name: str, value: str) -> str:
    parts = urlsplit(url)
    others = [(key, one) for key, one in parse_qsl(parts.query, keep_blank_values=True) if key != name]
    return urlunsplit(parts._replace(query=urlencode([*others, (name, value)])))


def _joined(address: str, found: str) -> str:
    try:
        return urljoin(address, found)
    except ValueError:
        return ""


def _origin(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc
