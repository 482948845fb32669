"""Start a replay: validate it, and count its events."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from django.db import transaction

from agents.kernel.ids import first_id_at
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models.audit import record
from triggers.events.order import last_seq, may_still_record
from triggers.events.search import Search
from triggers.exceptions import RuleError, TriggerDisabled
from triggers.models import Replay, Trigger
from triggers.replays.preview import MOST, Preview, preview

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
FASTEST = 1000.0  # events a second
USUAL_RATE = 10.0
LEAST_URGENT = 9
MOST_UNDERWAY = 10  # replays that have not ended: each takes a part of the dispatcher's time


def start_replay(
    search: Search,
    *,
    triggers: Sequence[Trigger] = (),
    rate: float = USUAL_RATE,
    priority: int | None = None,
    everything: bool = False,
    expected: int | None = None,
    by: str,
) -> Replay:
    """Dispatch the events of a search again, `rate` a second in the order of their arrival, to these triggers or to all that match;
    `priority` None is the least urgent. Events that arrive from now on do not take part. A search without a condition must be meant:
    `everything`. `expected` is the number of events that a preview has counted; if the search finds more, nothing is started.

    Raises RuleError, whose `field` names what is wrong, TriggerDisabled and IllegalState.
    """
    search = within(search)
    priority = LEAST_URGENT if priority is None else priority
    refuse_numbers(rate, priority)
    for trigger in triggers:
        if not trigger.enabled:
            raise TriggerDisabled(trigger.slug)
    if Replay.objects.filter(ended_at=None).count() >= MOST_UNDERWAY:
        raise IllegalState(f"{MOST_UNDERWAY} replays have not ended yet; wait for one, or cancel one.", status="busy")
    if search.finds_all and not everything:
        raise RuleError("the search has no condition, so it finds all events; say so, or search", field="all")
    # Of a transaction that is open now, an event may take part that the preview cannot see.
    last, is_open = last_seq(), may_still_record(search.end)
    found = preview(search, triggers)
    refuse_count(found, expected)
    with transaction.atomic():
        made = Replay.objects.create(
            search=search.dump(), start=search.start or EARLIEST, end=search.end or database_now(), triggers=[one.pk for one in triggers],
            rate=rate, priority=priority, total=found.events, position=first_id_at(search.start or EARLIEST), passed=search.above,
            until=last if is_open else found.last, by=by,
        )  # fmt: skip
        record(
            by, "start", made, start=made.start.isoformat(), end=made.end.isoformat(), rate=rate, priority=priority,
            total=found.events, triggers=[one.slug for one in triggers],
        )  # fmt: skip
        nudge_dispatcher()
    return Replay.objects.get(pk=made.pk)


def within(search: Search) -> Search:
    """The search with a range that ends now at the latest. Raises RuleError."""
    now = database_now()
    if search.start and search.start >= now:
        raise RuleError("the range begins in the future", field="start")
    return replace(search, end=min(search.end or now, now))


def refuse_numbers(rate: float, priority: int) -> None:
    if not 0 < rate <= FASTEST:
        raise RuleError(f"{rate:g} events a second; choose more than 0 and at most {FASTEST:,.0f}", field="rate")
    if not 0 <= priority <= LEAST_URGENT:
        raise RuleError(f"priority {priority}; 0 is most urgent, {LEAST_URGENT} least", field="priority")


def refuse_count(found: Preview, expected: int | None) -> None:
    if found.is_capped:
        raise RuleError(f"the search finds more than {MOST:,} events; choose a shorter range", field="start")
    if expected is not None and found.events > expected:
        raise RuleError(f"the search finds {found.events:,} events, not {expected:,}; preview it again", field="events")
    if not found.events:
        raise RuleError("the search finds no event", field="start")
    if found.events == found.without_payload:
        raise RuleError(
            f"the payloads of all {found.events:,} events were removed by retention or erasure", field="start"
        )
    if not found.listeners:
        raise RuleError("none of the triggers listens to any of these events", field="triggers")
