import calendar
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urljoin

from agents.guards.foreign_text import storable_text
from triggers.sources.html_text import html_to_text
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, register
from triggers.sources.polling.novelty import Item, digest
from triggers.sources.polling.over_http import Asking, HttpSettings, ListReader
from triggers.sources.polling.poller import Polled, Poller
from triggers.sources.runner import Assignment, Reader, Received, SourceError
from triggers.sources.webhooks.naming import is_name

MOST_BYTES = 2 * 2**20  # of a feed; the parser takes some seconds for the worst ones of this size
MOST_ITEMS = 1_000  # the newest ones; the rest is not looked at
MOST_TEXT = 50_000  # characters of an item
LONGEST = 2_000  # characters of a title, a name, an address
MOST_TAGS = 50
ACCEPT = "application/atom+xml, application/rss+xml, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.5"
TYPE = "item.published"


@dataclass(frozen=True, kw_only=True)
class FeedSettings(HttpSettings):
    """No settings of its own."""


@register
class Feed(Poller[FeedSettings]):
    name = "feed"
    label = "RSS or Atom feed"
    help_text = f"Polls a feed. Each new item is an event of type {TYPE}."
    group = Group.POLLING
    settings_class = FeedSettings
    secret_label = "Token"  # noqa: S105  (a label)
    setup = (
        "Enter the address of the feed itself: a web page names it in its source, in a link of type application/rss+xml or "
        "application/atom+xml.",
        "If the feed needs a token, enter it as the secret and name the header that carries it.",
    )
    docs_url = "https://www.rfc-editor.org/rfc/rfc4287"

    def connect(self, assignment: Assignment[FeedSettings]) -> Reader:
        return FeedReader(assignment, target=assignment.settings.url)


class FeedReader(ListReader):
    def poll(self, state: dict[str, Any]) -> Polled:
        asking = Asking(self.settings, self.assignment.secret, most_bytes=MOST_BYTES, accept=ACCEPT)
        answer = asking.ask(self.settings.url, state.get("validators"))
        if answer is None:
            return Polled(state=state)
        return self.news(items_of(answer.body, answer.url), state, answer)

    def message(self, item: Item, id: str) -> Received:
        data = item.value
        time = data["published"] or data["updated"]
        return Received(
            id=id,
            type=TYPE,
            subject=data["link"] if is_name(data["link"]) else "",
            time=datetime.fromisoformat(time) if time else None,
            payload=Payload(data=data),
        )


def items_of(body: bytes, address: str) -> list[Item]:
    """The items of a feed, the oldest first. Raises SourceError."""
    import feedparser  # needed by this kind alone

    # Its cleaning of HTML is quadratic, and not needed for text.
    parsed = feedparser.parse(
        io.BytesIO(body),
        response_headers={"content-type": "application/xml", "content-location": address},
        sanitize_html=False,
        resolve_relative_uris=False,
    )
    if not parsed.version and not parsed.entries:
        raise SourceError(
            "The answer is no RSS or Atom feed.",
            remedy="Enter the address of the feed, not that of the page that shows it.",
        )
    items = [_item(entry, address) for entry in parsed.entries[:MOST_ITEMS]]
    items.reverse()
    if all(item.value["published"] for item in items):
        items.sort(key=lambda item: str(item.value["published"]))
    return items


def _item(entry: Any, address: str) -> Item:
    html = "\n".join(_texts(entry.get("content"))) or _text(entry.get("summary"))
    link = _link(entry, address)
    title = html_to_text(_text(entry.get("title"))[:LONGEST])
    published = _time(entry.get("published_parsed"))
    content = "\n".join([title, link, str(published), html])
    id = _text(entry.get("id")) or link or f"content:{digest(content)}"
    data = {
        "id": id,
        "title": title,
        "link": link,
        "author": _text(entry.get("author"))[:LONGEST],
        "published": published,
        "updated": _time(dict.get(entry, "updated_parsed")),  # its own `get` falls back to `published`
        "text": html_to_text(html[:MOST_TEXT]),
        "tags": [_text(tag.get("term"))[:LONGEST] for tag in entry.get("tags", [])[:MOST_TAGS]],
        "files": [
            {"url": _text(file.get("href"))[:LONGEST], "type": _text(file.get("type"))[:LONGEST]}
            for file in entry.get("enclosures", [])[:MOST_TAGS]
        ],
    }
    return Item(id=id, content=content, value=data)


def _texts(contents: Any) -> Iterator[str]:
    return (_text(one.get("value")) for one in contents or ())


def _text(value: Any) -> str:
    return storable_text(value) if isinstance(value, str) else ""


def _link(entry: Any, address: str) -> str:
    link = _text(entry.get("link"))[:LONGEST]
    try:
        return urljoin(address, link) if link else ""
    except ValueError:
        return link


def _time(parsed: Sequence[int] | None) -> str | None:
    """feedparser's time, which is in UTC, as RFC 3339."""
    try:
        return datetime.fromtimestamp(calendar.timegm(tuple(parsed)), UTC).isoformat() if parsed else None
    except (ValueError, OverflowError, OSError, TypeError):
        return None
