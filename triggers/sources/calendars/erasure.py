"""Erase what is stored of the events of a calendar, beside their events here: the recorded entries, and the starts that wait.

An entry keeps its ids, times and state, so that the next look makes no event of what has not changed. The calendar still has the rest:
a later change of the event there is a new event with its data.
"""

import json
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from runs.db.sql import execute
from runs.models import OutboxMessage
from triggers.models import CalendarEntry, Source
from triggers.sources.calendars import TOPIC
from triggers.sources.calendars.entry import BLANK, IS_ERASED

ERASE = """
UPDATE triggers_calendarentry SET data = data || %(blank)s::jsonb WHERE id = ANY(%(ids)s::bigint[])
"""


@dataclass(frozen=True, kw_only=True)
class Meetings:
    """Those with this organizer, by the address that is the subject of their events; of one source, or of any (empty)."""

    organizer: str
    source: str = ""

    def count(self) -> int:
        return self._entries().count() + self._starts().count()

    def erase(self) -> int:
        """Returns how many. A start that waits is dropped: it comes no more, unless the event is moved at the calendar or the source is
        edited."""
        starts, _ = self._starts().delete()  # waits for the dispatcher, which skips what is locked
        ids = list(self._entries().values_list("id", flat=True))
        return starts + execute(ERASE, {"blank": json.dumps({**BLANK, IS_ERASED: True}), "ids": ids})

    def _entries(self) -> QuerySet[CalendarEntry]:
        rows = CalendarEntry.objects.filter(data__organizer__address=self.organizer)
        return rows.filter(source__slug=self.source) if self.source else rows

    def _starts(self) -> QuerySet[OutboxMessage]:
        rows = OutboxMessage.objects.filter(topic=TOPIC, payload__data__organizer__address=self.organizer)
        return rows.filter(key=self._key()) if self.source else rows

    def _key(self) -> str:
        id: Any = Source.objects.filter(slug=self.source).values_list("id", flat=True).first()
        return str(id) if id else ""
