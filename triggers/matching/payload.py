"""The data of an event for matching: limited in size, parsed once and only if needed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.api.strict_json import MAX_DEPTH
from runs.db.sql import fetch
from triggers.matching.expressions.cel import load_data

SMALL = 16_384  # characters of JSON
DATA = """
SELECT id, length, CASE WHEN length <= %s::int THEN text END
FROM (SELECT id, data::text AS text, octet_length(data::text) AS length
      FROM triggers_event WHERE id = ANY((SELECT %s::uuid[])::uuid[]) AND data IS NOT NULL OFFSET 0) event
"""


@dataclass
class Payload:
    """An event's data as JSON text. `without_data`: the reason why expressions must not read it."""

    text: str = "null"
    without_data: str = ""
    is_unread: bool = False  # only the cost of the payload is known: it is not small

    @cached_property
    def value(self) -> Any:
        try:
            return load_data(self.text)
        except RecursionError:
            self.without_data = f"it is nested deeper than {MAX_DEPTH} levels"
            return None

    @cached_property
    def is_small(self) -> bool:
        """Whether the payload is small and flat enough for this process."""
        return (
            not self.is_unread and len(self.text) <= SMALL and self.text.count("[") + self.text.count("{") <= MAX_DEPTH
        )


NOTHING = Payload()
UNREAD = Payload(is_unread=True)


def read_payloads(event_ids: Sequence[UUID], most: int | None = None) -> dict[UUID, Payload]:
    """The payloads of the events that have data. `most`: bytes of the largest that is read, at most WAKEFUL_MAX_MATCH."""
    if not event_ids:
        return {}
    most = min(most or settings.WAKEFUL_MAX_MATCH, settings.WAKEFUL_MAX_MATCH)
    return {
        id: Payload(text=text) if text is not None else Payload(without_data=_too_large(length, most))
        for id, length, text in fetch(DATA, [most, list(set(event_ids))])
    }


def _too_large(length: int, most: int) -> str:
    return f"it has {length:,} bytes as JSON, and expressions read at most {most:,} (WAKEFUL_MAX_MATCH)"
