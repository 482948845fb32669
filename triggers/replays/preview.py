"""A preview of a replay: the number of its events, their triggers, and a sample."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from uuid import UUID

from django.db.models import QuerySet

from runs.db.sql import fetch
from triggers.dispatch.replay_pieces import heard_by
from triggers.dispatch.shadow import candidates
from triggers.events.order import in_parts
from triggers.events.pages import page_of
from triggers.events.search import Search
from triggers.matching.index import Index, Rule
from triggers.models import Event, Trigger

MOST = 100_000  # events of one replay
SAMPLE = 3  # events, the newest ones
COUNT = """
SELECT source.slug, chosen.type, chosen.target_id, count(*), count(chosen.payload_removed_at), max(chosen.seq)
FROM ({chosen}) chosen JOIN triggers_source source ON source.id = chosen.source_id GROUP BY 1, 2, 3
"""


@dataclass(frozen=True, kw_only=True)
class Listener:
    """A trigger that would get `events`, before its filter."""

    trigger: Trigger
    events: int


@dataclass(frozen=True, kw_only=True)
class Preview:
    """`events` of the search, the last of them at `last`; those `without_payload` and the `unheard` ones are skipped. With
    `is_capped`, there are more than MOST."""

    events: int
    without_payload: int
    unheard: int
    listeners: Sequence[Listener]
    last: int = 0

    @property
    def is_capped(self) -> bool:
        return self.events > MOST


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """An event, and the triggers of a replay that match it today."""

    event: Event
    triggers: Sequence[Trigger]


def preview(search: Search, triggers: Sequence[Trigger] = ()) -> Preview:
    """Count the events of a replay to these triggers, or to all that listen."""
    all_triggers = {trigger.pk: trigger for trigger in Trigger.objects.filter(enabled=True)}
    chosen = {trigger.pk for trigger in triggers}
    index = Index([bare_rule(trigger) for trigger in all_triggers.values()])
    counts: Counter[UUID] = Counter()
    events = gone = unheard = last = 0
    counted = [row for part in in_parts(Event.objects.order_by()) for row in fetch(*_counting(search, part))]
    for source, type, target, count, removed, newest in counted:
        heard = heard_by(index, source, type, target, chosen)
        counts.update(dict.fromkeys(heard, count - removed))
        last = max(last, newest)
        events, gone, unheard = events + count, gone + removed, unheard + (0 if heard else count - removed)
    listeners = [Listener(trigger=all_triggers[id], events=count) for id, count in counts.items() if id in all_triggers]
    return Preview(
        events=events,
        without_payload=gone,
        unheard=unheard,
        last=last,
        listeners=sorted(listeners, key=lambda one: (-one.events, one.trigger.slug)),
    )


def sample(search: Search, triggers: Sequence[Trigger] = ()) -> list[Sampled]:
    """The newest events with a payload, and the triggers whose filters they pass today."""
    chosen = {trigger.pk for trigger in triggers}
    with_payload = Event.objects.filter(payload_removed_at=None)
    ids = page_of(search, size=SAMPLE, among=with_payload).ids
    events = Event.objects.filter(pk__in=ids).select_related("source").order_by("-seq")
    return [Sampled(event=event, triggers=_matching(event, chosen)) for event in events]


def bare_rule(trigger: Trigger) -> Rule:
    """The source and types that the trigger listens to, without its expressions."""
    return Rule(
        id=trigger.pk, slug=trigger.slug, agent=trigger.agent, source=trigger.source, types=tuple(trigger.types)
    )


def _matching(event: Event, chosen: Collection[UUID]) -> list[Trigger]:
    matching = [one.trigger for one in candidates(event) if not one.why_not]
    return [trigger for trigger in matching if not chosen or trigger.pk in chosen]


def _counting(search: Search, events: QuerySet[Event]) -> tuple[str, tuple[object, ...]]:
    columns = ("source_id", "type", "target_id", "payload_removed_at", "seq")
    sql, parameters = search.within(search.of(events)).values(*columns)[: MOST + 1].query.sql_with_params()
    return COUNT.replace("{chosen}", sql), tuple(parameters)
