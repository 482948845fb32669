import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urljoin

from agents.guards.foreign_text import storable_text
from runs.processes import isolation
from triggers.sources.continuity import Gaps
from triggers.sources.html_text import html_to_text
from triggers.sources.http.payload import Payload
from triggers.sources.kind import Group, register
from triggers.sources.polling.conditional_get import Asking, HttpSettings, ListReader
from triggers.sources.polling.novelty import Item, digest
from triggers.sources.polling.poller import Polled, Poller
from triggers.sources.runner import Assignment, Reader, Received, SourceError
from triggers.sources.webhooks.naming import is_name

MOST_BYTES = 2 * 2**20  # of a feed
SECONDS = 15  # of processor time, to parse one
PARSED_WITHIN = 30.0  # seconds of wall-clock time, because the machine may be busy
MOST_TEXT = 50_000  # characters of an item
LONGEST = 2_000  # characters of a title, a name, an address
ACCEPT = "application/atom+xml, application/rss+xml, application/xml;q=0.9, text/xml;q=0.9, */*;q=0.5"
TYPE = "item.published"
PROCESS = "triggers.sources.polling.feed_parser"


@dataclass(frozen=True, kw_only=True)
class FeedSettings(HttpSettings):
    """Settings of a feed: only those of all polled addresses."""


@register
class Feed(Poller[FeedSettings]):
    name = "feed"
    label = "RSS or Atom feed"
    help_text = f"Polls a feed. Each new item is an event of type {TYPE}."
    group = Group.POLLING
    settings_class = FeedSettings
    in_sight = ("url", "every")
    secret_label = "Token"  # noqa: S105  (a label)
    gaps = Gaps(
        are_seen=True,
        how="when nothing of the last poll is left in the feed, items may have come and gone between the two polls. How many is not known.",
    )
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
        return self.news(items_of(answer.body, answer.url, self.settings.pause), state, answer)

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


def items_of(body: bytes, address: str, pause: timedelta | None = None) -> list[Item]:
    """The items of a feed, the oldest first. Raises SourceError; a feed that costs too much is fetched again after the
    `pause`.
    """
    entries = _parsed(body, address, pause)
    if entries is None:
        raise SourceError(
            "The answer is no RSS or Atom feed.",
            remedy="Enter the address of the feed, not that of the page that shows it.",
        )
    items = [_item(entry, address) for entry in entries]
    items.reverse()
    if all(item.value["published"] for item in items):
        items.sort(key=lambda item: str(item.value["published"]))
    return items


def _parsed(body: bytes, address: str, pause: timedelta | None) -> list[dict[str, Any]] | None:
    """The feed as parsed by `feed_parser`."""
    try:
        done = subprocess.run(
            isolation.command_of(PROCESS, nice=10, seconds=SECONDS),
            input=address.encode() + b"\n" + body,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=isolation.environment(),
            timeout=PARSED_WITHIN,
        )
    except subprocess.TimeoutExpired:
        done = None
    if done is None or done.returncode:
        raise SourceError(
            "The feed cannot be parsed within the limits of time and memory.",
            remedy="Ask for a shorter feed, or disable the source: some feeds are made to cost time.",
            retry_after=pause,
        )
    found: list[dict[str, Any]] | None = json.loads(done.stdout)
    return found


def _item(entry: Mapping[str, Any], address: str) -> Item:
    html, link = storable_text(entry["html"]), _link(entry["link"], address)
    title = html_to_text(entry["title"][:LONGEST])
    content = "\n".join([title, link, str(entry["published"]), html])
    id = storable_text(entry["id"]) or link or f"content:{digest(content)}"
    data = {
        "id": id,
        "title": title,
        "link": link,
        "author": _short(entry["author"]),
        "published": entry["published"],
        "updated": entry["updated"],
        "text": html_to_text(html[:MOST_TEXT]),
        "tags": [_short(tag) for tag in entry["tags"]],
        "files": [{name: _short(value) for name, value in file.items()} for file in entry["files"]],
    }
    return Item(id=id, content=content, value=data)


def _short(text: str) -> str:
    return storable_text(text)[:LONGEST]


def _link(text: str, address: str) -> str:
    link = _short(text)
    try:
        return urljoin(address, link) if link else ""
    except ValueError:
        return link
