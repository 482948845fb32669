"""The text of a delivery: one notification, or several together."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from runs.notifications.policy import ORDER

UTC = ZoneInfo("UTC")
SUBJECT = 120  # characters
LONGEST = 20_000  # characters of one text


@dataclass(frozen=True, kw_only=True)
class Item:
    """One notification; `link` is an address that works from outside."""

    id: int
    text: str
    sender: str
    urgency: str
    topic: str
    link: str
    at: datetime


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request for a decision, as it is posted where a run was woken. `id`: of the delivery that posts it. `is_whole`: nothing of what
    is decided on is left out. `outcome`: what became of it; empty: it is open."""

    id: UUID
    title: str
    question: str
    detail: str
    arguments: str
    page: str
    is_question: bool
    is_whole: bool
    outcome: str = ""


@dataclass(frozen=True, kw_only=True)
class Message:
    """`id` is the delivery's: the same whenever this message is sent again. `more`: notifications that had no room in it."""

    id: UUID
    to: str
    items: Sequence[Item]
    more: int = 0
    zone: ZoneInfo = UTC  # of the times in the text
    request: Request | None = None

    @property
    def urgency(self) -> str:
        return max((item.urgency for item in self.items), key=ORDER.__getitem__)

    @property
    def subject(self) -> str:
        """One line, without control characters: it becomes a header."""
        line = " ".join("".join(c if c.isprintable() else " " for c in self.items[0].text).split())
        count = len(self.items) + self.more
        line = f"{count} notifications: {line}" if count > 1 else line
        return line if len(line) <= SUBJECT else f"{line[: SUBJECT - 1]}…"

    @property
    def text(self) -> str:
        rest = [f"{self.more} more had no room here; the console shows them."] if self.more else []
        return "\n\n".join([*(_paragraph(item, self.zone) for item in self.items), *rest])

    @property
    def at(self) -> datetime:
        return max(item.at for item in self.items)

    def as_json(self) -> dict[str, Any]:
        return {
            "delivery": str(self.id),
            "to": self.to,
            "urgency": self.urgency,
            "subject": self.subject,
            "text": self.text,
            "notifications": [
                {
                    "id": item.id,
                    "text": item.text,
                    "sender": item.sender,
                    "urgency": item.urgency,
                    "topic": item.topic,
                    "link": item.link,
                    "at": item.at.isoformat(),
                }
                for item in self.items
            ],
            "more": self.more,
        }


def shortened(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… (shortened; the console shows all of it)"


def _paragraph(item: Item, zone: ZoneInfo) -> str:
    lines = [item.text, item.link, f"— {item.sender}, {item.at.astimezone(zone):%Y-%m-%d %H:%M} {zone.key}"]
    return "\n".join(line for line in lines if line)
