"""The process that parses one feed, in isolation (`runs.processes.isolation`).

The parser is quadratic on some feeds, and a search of a regular expression cannot be interrupted and holds the GIL: a feed of a
stranger would stop every source of its process.

It gets the address of the feed, a newline and the feed; it answers a list of entries in JSON, or null: it is no feed.
"""

import calendar
import io
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

MOST_ANSWER = 32 * 2**20  # bytes
MOST_ITEMS = 1_000  # the newest ones; the rest is not looked at
MOST_TAGS = 50


def main() -> None:
    address, _, body = sys.stdin.buffer.read().partition(b"\n")
    answer = json.dumps(entries_of(body, address.decode())).encode()
    if len(answer) > MOST_ANSWER:
        raise MemoryError
    sys.stdout.buffer.write(answer)


def entries_of(body: bytes, address: str) -> list[dict[str, Any]] | None:
    import feedparser  # not for the processes that only know of this module

    # Its cleaning of HTML is quadratic, and not needed for text.
    parsed = feedparser.parse(
        io.BytesIO(body),
        response_headers={"content-type": "application/xml", "content-location": address},
        sanitize_html=False,
        resolve_relative_uris=False,
    )
    if not parsed.version and not parsed.entries:
        return None
    return [_entry(entry) for entry in parsed.entries[:MOST_ITEMS]]


def _entry(entry: Any) -> dict[str, Any]:
    contents = [_text(one.get("value")) for one in entry.get("content") or ()]
    return {
        "id": _text(entry.get("id")),
        "title": _text(entry.get("title")),
        "link": _text(entry.get("link")),
        "author": _text(entry.get("author")),
        "published": _time(entry.get("published_parsed")),
        "updated": _time(dict.get(entry, "updated_parsed")),  # its own `get` falls back to `published`
        "html": "\n".join(contents) or _text(entry.get("summary")),
        "tags": [_text(tag.get("term")) for tag in entry.get("tags", [])[:MOST_TAGS]],
        "files": [
            {"url": _text(file.get("href")), "type": _text(file.get("type"))}
            for file in entry.get("enclosures", [])[:MOST_TAGS]
        ],
    }


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _time(parsed: Sequence[int] | None) -> str | None:
    """feedparser's time, which is in UTC, as RFC 3339."""
    try:
        return datetime.fromtimestamp(calendar.timegm(tuple(parsed)), UTC).isoformat() if parsed else None
    except (ValueError, OverflowError, OSError, TypeError):
        return None
