"""The fields that recent events have, offered below the form of a trigger: a click inserts one where the person writes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse

from config.console.parts.sections import Section
from triggers.matching.field_samples import Seen, SeenField, seen_fields
from triggers.matching.trial import rule_from

TYPES = 50  # that are shown


@dataclass(frozen=True, kw_only=True)
class SeenFields:
    """Section of a form; it loads its content, and loads it again when source or types change."""

    template: ClassVar[str] = "admin/console/seen.html"
    url: str
    try_url: str
    seen: Seen | None = None
    types: Sequence[tuple[str, int]] = field(default=())
    note: str = ""
    targets: ClassVar = (("filter", "Filter"), ("key", "Key"), ("input", "Input"))

    @property
    def fields(self) -> Sequence[SeenField]:
        return self.seen.fields if self.seen else ()


def offered(*, tries: bool) -> Section:
    """`tries`: with a button that tries the form."""
    try_url = reverse("admin:triggers_trigger_try_form") if tries else ""
    return SeenFields(url=reverse("admin:triggers_trigger_seen"), try_url=try_url)


def respond(request: HttpRequest, source: str, types: Sequence[str]) -> HttpResponse:
    """The fields of this source and these types; without types, of all types of the source."""
    rule = rule_from({"source": source, "types": types or ["*"], "filter": "", "key": "", "input": {}})
    seen = seen_fields(rule)
    counted = list(seen.types.items())[:TYPES]
    section = SeenFields(url="", try_url="", seen=seen, types=counted, note=_note(seen))
    return TemplateResponse(request, "admin/console/seen_body.html", {"section": section})


def _from(events: int) -> str:
    return "From the newest event." if events == 1 else f"From the newest {events:,} events."


def _note(seen: Seen) -> str:
    notes = [_from(seen.events) if seen.events else "No recent event of this source and these types."]
    if seen.left_out:
        notes.append(f"{seen.left_out:,} are left out because they are large.")
    if seen.has_more:
        notes.append("There are more fields than these, which are the most frequent.")
    return " ".join(notes)
