"""The doors: when the last event of each source came, how long it usually takes until the next, and what is wrong with it."""

from dataclasses import dataclass
from datetime import datetime

from config.console.parts.links import listing, page
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from config.console.sources.condition import LEVELS, Condition, conditions_of
from triggers.models import Source
from triggers.sources.kind import kinds

MOST = 100  # sources that are looked at
SHOWN = 10
WORDS = list(LEVELS)


@dataclass(frozen=True, kw_only=True)
class Door:
    slug: str
    kind: str
    url: str
    events_url: str
    condition: Condition

    @property
    def last_shown(self) -> Cell:
        return appointment(self.condition.last_at) if self.condition.last_at else ""

    @property
    def usual(self) -> str:
        return self.condition.rhythm.words if self.condition.rhythm else ""

    @property
    def rank(self) -> tuple[int, float]:
        last_at = self.condition.last_at
        return WORDS.index(self.condition.word), -last_at.timestamp() if last_at else 0


def doors(now: datetime) -> list[Door]:
    """Those with trouble first, then by the last event."""
    sources = list(Source.objects.filter(enabled=True, kind__in=kinds()).order_by("slug")[:MOST])
    conditions = conditions_of(sources, now=now)
    found = [_door(source, conditions[source.pk]) for source in sources if source.pk in conditions]
    return sorted(found, key=lambda one: one.rank)


def _door(source: Source, condition: Condition) -> Door:
    return Door(
        slug=source.slug,
        kind=source.kind,
        url=page("triggers_source", source.pk),
        events_url=listing("triggers_event", source__id__exact=source.pk),
        condition=condition,
    )
