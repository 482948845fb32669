"""Try a trigger's filter on recent events with the dispatcher's own matching, without starting runs."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from config.console.parts.links import event_link
from config.console.parts.moments import moment
from config.console.parts.sections import Section, Table
from triggers.dispatch.admission import Refusal
from triggers.dispatch.evaluator import Evaluator
from triggers.dispatch.expressions import compile_each
from triggers.dispatch.index import Index, Rule
from triggers.dispatch.match import case_of, decide
from triggers.dispatch.payload import NOTHING, Payload, read_payloads
from triggers.dispatch.pending import item_of
from triggers.dispatch.rules import rule_of
from triggers.models import Event, Trigger

SECONDS = 10.0  # for all events of a page
LOOKED_AT = 5_000  # search this many of the newest events for its types
SHOWN = 50


@dataclass(frozen=True, kw_only=True)
class Verdict:
    event: Event
    matches: str
    why: str


def try_on_recent(trigger: Trigger, changes: dict[str, Any]) -> Section:
    """A table of the newest events of its types, and the filter's result for each."""
    rule = replace(rule_of(trigger), paused_reason=None, **{**changes, "types": tuple(changes["types"])})
    rule = replace(rule, compiled=compile_each((rule.filter, rule.key, *rule.input.values())))
    if not rule.types:
        return Table(title="Recent events", headers=(), rows=[], empty="It listens to no event types.")
    verdicts = _verdicts(_recent(rule), rule)
    count = sum(verdict.matches == "yes" for verdict in verdicts)
    return Table(
        title=f"Recent events: {count} of {len(verdicts)} match",
        note="No run was started. The result does not depend on whether the trigger is paused.",
        headers=("Matches", "Reason", "Event", "Type", "Source", "Received"),
        rows=[
            (
                one.matches,
                one.why,
                event_link(one.event.pk),
                one.event.type,
                one.event.source.slug,
                moment(one.event.received_at),
            )
            for one in verdicts
        ],
        empty=f"No event of its types and source among the newest {LOOKED_AT:,} events.",
    )


def _recent(rule: Rule) -> list[Event]:
    index = Index([rule])
    telling = Event.objects.filter(target=None, payload_removed_at=None)
    newest = telling.order_by("-id").values_list("id", "source__slug", "type")[:LOOKED_AT]
    wanted: list[UUID] = [pk for pk, source, type_ in newest if index.candidates(source, type_)][:SHOWN]
    events = Event.objects.filter(pk__in=wanted).order_by("-id").select_related("source")
    return list(events.defer("body", "headers", "data"))


def _verdicts(events: Sequence[Event], rule: Rule) -> list[Verdict]:
    """In another process, so that this one keeps serving; at most SECONDS."""
    payloads = read_payloads([event.pk for event in events])
    until = time.monotonic() + SECONDS
    with Evaluator() as evaluator:
        return [
            _verdict(event, rule, payloads.get(event.pk, NOTHING), evaluator)
            if time.monotonic() < until
            else Verdict(event=event, matches="not tried", why=f"time limit of {SECONDS:g} s for this page reached")
            for event in events
        ]


def _verdict(event: Event, rule: Rule, payload: Payload, evaluator: Evaluator) -> Verdict:
    item = item_of(event)
    [result] = decide(item, [case_of(item, rule)], payload, evaluator)
    if result is None:
        return Verdict(event=event, matches="no", why=f"{rule.filter} is false")
    if isinstance(result, Refusal):
        return Verdict(event=event, matches="error", why=result.reason)
    key = result.key.partition(":")[2] if result.key else ""
    return Verdict(event=event, matches="yes", why=f"key {key}" if key else "")
