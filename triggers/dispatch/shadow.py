"""Shadow runs of past events: which triggers match today, and what their agents would do."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from agents.kernel.ids import run_id
from agents.prompt_agents import catalog
from runs.actions.event_runs import runs_of_event
from runs.claim import Claim, gate_answer
from runs.models import NIL, Run
from runs.models.audit import record
from runs.shadow.shadow import Shadow, shadow
from triggers.dispatch.rules import rule_of
from triggers.exceptions import NotWanted, PayloadRemoved
from triggers.matching.expressions.evaluator import Evaluator
from triggers.matching.index import Index, Rule
from triggers.matching.match import case_of, decide
from triggers.matching.matches import Match, Refusal
from triggers.matching.payload import NOTHING, read_payloads
from triggers.matching.pending import Item, item_of
from triggers.models import Event, Trigger


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A trigger that matches the event today or has run on it. `why_not`: why it does not match today; its newest `run`."""

    trigger: Trigger
    why_not: str
    run: Run | None


def candidates(event: Event) -> list[Candidate]:
    """The triggers that match the event today or have run on it, by slug. Raises PayloadRemoved."""
    _require_payloads([event])
    runs = {run.trigger_id: run for run in runs_of_event(event.pk).order_by("seq").defer("input", "result", "fired")}
    triggers = list(Trigger.objects.order_by("slug"))
    found = []
    for trigger, matched in zip(triggers, _match(event, [_rule(trigger) for trigger in triggers]), strict=True):
        if isinstance(matched, Match) or trigger.pk in runs:
            why_not = "" if isinstance(matched, Match) else matched
            found.append(Candidate(trigger=trigger, why_not=why_not, run=runs.get(trigger.pk)))
    return found


def shadow_event(event: Event, trigger: Trigger, *, by: str, run_id: UUID | None = None) -> Shadow:
    """Execute a shadow run of the trigger on this event. Overlap, rates, windows and pauses are ignored.

    The journal of the run `run_id`, or of the trigger's newest run on the event, answers calls and waits; the shadow run also
    gets the other events of that run. Raises PayloadRemoved, NotWanted and IllegalState.
    """
    catalog.refresh(at_once=True)
    rule, origin = _rule(trigger), _origin(event, trigger, run_id)
    events = _events(event, origin)
    _require_payloads(events)
    [matched] = _match(events[-1], [rule])
    if not isinstance(matched, Match):
        raise NotWanted(trigger.slug, matched)
    record(by, "shadow", event, trigger=trigger.slug)
    return shadow(_claim(matched, rule, events, origin), origin.pk if origin else None)


def _rule(trigger: Trigger) -> Rule:
    return replace(rule_of(trigger), paused_reason=None)


def _match(event: Event, rules: Sequence[Rule]) -> list[Match | str]:
    """For each rule its match, or the reason why it does not match. Evaluates in another process, because this may be a
    web process.
    """
    item = item_of(event)
    unwanted = {rule.id: why for rule in rules if (why := _unwanted(item, rule))}
    cases = [case_of(item, rule) for rule in rules if rule.id not in unwanted]
    payload = read_payloads([event.pk]).get(event.pk, NOTHING)
    with Evaluator() as evaluator:
        decided = decide(item, cases, payload, evaluator)
    found: dict[UUID, Match | str] = {**unwanted}
    for case, one in zip(cases, decided, strict=True):
        found[case.rule.id] = (
            one.reason if isinstance(one, Refusal) else one or f"its filter {case.rule.filter} is false"
        )
    return [found[rule.id] for rule in rules]


def _unwanted(item: Item, rule: Rule) -> str:
    if item.target_id not in (None, rule.id):
        return "the event targets another trigger"
    if not rule.enabled:
        return "it is disabled"
    if item.target_id is None and not Index([rule]).candidates(item.source, item.type):
        return "it listens to other types, or to another source"
    return ""


def _origin(event: Event, trigger: Trigger, run_id: UUID | None) -> Run | None:
    """The run whose journal can answer: of this agent, and with its payload."""
    runs = runs_of_event(event.pk).filter(trigger_id=trigger.pk, agent=trigger.agent, payload_removed_at=None)
    return (runs.filter(pk=run_id) if run_id else runs).order_by("seq").last()


def _events(event: Event, origin: Run | None) -> list[Event]:
    if origin is None or len(origin.event_ids) < 2:
        return [event]
    return list(Event.objects.filter(pk__in=origin.event_ids).select_related("source").order_by("seq"))


def _require_payloads(events: Sequence[Event]) -> None:
    for event in events:
        if event.payload_removed_at:
            raise PayloadRemoved(event.pk)


def _claim(matched: Match, rule: Rule, events: Sequence[Event], origin: Run | None) -> Claim:
    """A claim of the run, with the id that it has or would have."""
    return Claim(
        run_id=origin.pk if origin else run_id(rule.id, events[-1].pk, UUID(NIL)),
        epoch=0,
        id=None,
        attempt=1,
        agent=rule.agent,
        trigger=rule.slug,
        trigger_id=rule.id,
        event_ids=[event.pk for event in events],
        input=matched.input,
        policy=rule.policy,
        root_id=matched.root_id,
        depth=matched.depth,
        chain=matched.chain,
        **(gate_answer(origin.fired) if origin and origin.fired else {}),
        is_tainted=any(event.is_tainted for event in events) or (origin is not None and origin.is_tainted),
        key=matched.key,
        slot=None,
        key_limit=rule.key_limit,
    )
