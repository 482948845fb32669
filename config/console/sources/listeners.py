"""The triggers that listen to a source, on its page."""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from config.console.parts.html import format_html
from config.console.parts.links import link, new_trigger_link, page
from config.console.parts.sections import Cell, Section, Table
from triggers.models import Event, Source, Trigger

SHOWN = 50
TYPES_FROM = 50  # newest events
LOOKED_THROUGH = 1_000  # triggers of any source
MOST_TYPES = 5


def listeners(source: Source, *, may_add: bool) -> Section:
    """`may_add`: whether the user may add a trigger."""
    types = _types(source)
    offered = types if len(types) <= MOST_TYPES else []
    add = new_trigger_link(source.slug, offered, "Add a trigger for its events") if may_add else ""
    return Table(
        title="Triggers that listen to it",
        headers=("Trigger", "Agent", "Source", "Event types", "Filter", "State"),
        rows=[
            (
                link(page("triggers_trigger", one.pk), one.slug),
                one.agent,
                one.source or "any",
                ", ".join(one.types),
                _code(one.filter),
                "paused" if one.paused_at else "active",
            )
            for _, one in zip(range(SHOWN), _listening(source, types), strict=False)
        ],
        note=add,
        empty="None: its events start no run."
        if types
        else "None names this source. It has no event yet, so triggers of any source may still listen to it.",
    )


def _types(source: Source) -> list[str]:
    newest = Event.objects.filter(source=source, dispatched_at__isnull=False).order_by("-seq")[:TYPES_FROM]
    return sorted(set(newest.values_list("type", flat=True)))


def _listening(source: Source, types: list[str]) -> Iterator[Trigger]:
    """Triggers of this source, then those of any source that listen to types of its newest events."""
    enabled = Trigger.objects.filter(enabled=True).exclude(types=[]).order_by("slug")
    yield from enabled.filter(source=source.slug)[:SHOWN]
    for one in enabled.filter(source="")[:LOOKED_THROUGH] if types else ():
        if any(fnmatchcase(type, glob) for glob in one.types for type in types):
            yield one


def _code(text: str) -> Cell:
    return format_html("<code>{}</code>", text) if text else "–"
