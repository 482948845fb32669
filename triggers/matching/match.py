"""Match events against triggers, and evaluate their filters, keys and inputs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import compress
from typing import TYPE_CHECKING, Any
from uuid import UUID

from triggers.matching.expressions.cel import Expression, ExpressionAnswer, Question, answer, context_of, field_at
from triggers.matching.expressions.evaluator import Evaluator, Subject, shared
from triggers.matching.index import FieldOf, Index, Path, Rule, group_of
from triggers.matching.matches import Match, Refusal, hold_or_stop, refuse
from triggers.matching.payload import NOTHING, Payload, read_payloads
from triggers.matching.pending import Item
from triggers.models import Decision

if TYPE_CHECKING:
    from triggers.switches.switch import Switch

WantedByLarge = Callable[[Item], Sequence[Rule]]
CasesOf = Callable[[Item, Sequence[Rule]], list["Case"]]


@dataclass(frozen=True, kw_only=True)
class Outgoing:
    """A subscription that wants the event, or whose filter raised the `error`."""

    subscription_id: UUID
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class Sighting:
    """A switch that sees the event, with the key, or whose expressions raised the `error`. `begins`: the event begins its time,
    and is not the one that it waits for."""

    switch: "Switch"
    begins: bool
    key: str = ""
    error: str = ""


@dataclass(kw_only=True)
class Matched:
    """The result of matching an event: matches for admission, and refusals that are already decided. `later`: the part of a
    large event that is left to the next batches. `outgoing`: the subscriptions that it leaves to. `sightings`: the switches that
    see it."""

    item: Item
    matches: list[Match] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    later: list[Match | Refusal] = field(default_factory=list)
    outgoing: list[Outgoing] = field(default_factory=list)
    sightings: list[Sighting] = field(default_factory=list)
    is_partial: bool = False  # costly cases are not answered yet, or wait for earlier events
    may_be_settled: bool = False  # earlier parts of it may have been dispatched
    behind: frozenset[UUID] = frozenset()  # triggers at which it waits for earlier events
    blocks: frozenset[UUID] = frozenset()  # triggers at which later events wait for its missing part
    is_settled: bool = False  # what is matched of it has been dispatched
    is_unheard: bool = False  # a run that waits for it has not been woken yet
    is_locked: bool = False  # another session has locked its row, or one of its triggers

    @property
    def size(self) -> int:
        return len(self.matches) + len(self.refusals)

    @property
    def keys(self) -> set[str]:
        return {match.key for match in self.matches if match.key} | self.later_keys

    @property
    def later_keys(self) -> set[str]:
        return {one.key for one in self.later if isinstance(one, Match) and one.key}

    @property
    def triggers(self) -> set[UUID]:
        return {match.rule.id for match in self.matches} | {refusal.trigger_id for refusal in self.refusals}

    def keep(self, most: int) -> None:
        """Put off all but the first `most`."""
        self.later += [*self.refusals[most:], *self.matches[max(most - len(self.refusals), 0) :]]
        self.matches = self.matches[: max(most - len(self.refusals), 0)]
        self.refusals = self.refusals[:most]

    def put_off(self, busy: set[str]) -> None:
        """Put off the matches of these keys."""
        self.later += [match for match in self.matches if match.key in busy]
        self.matches = [match for match in self.matches if match.key not in busy]


def narrowed(
    items: Sequence[Item], index: Index, most: int, wanted_by_large: WantedByLarge
) -> list[tuple[Item, Sequence[Rule]]]:
    """The triggers that may match each event. If more than `most` listen, its fields narrow them down."""
    large = [item.is_large and needs_payload(item, index) for item in items]
    many = [not is_large and count_listening(item, index) > most for item, is_large in zip(items, large, strict=True)]
    payloads = read_payloads([item.event_id for item in compress(items, many) if needs_payload(item, index)])
    return [
        (
            item,
            wanted_by_large(item)
            if is_large
            else wanted_by(item, index, payloads.get(item.event_id, NOTHING) if listen_many else None),
        )
        for item, is_large, listen_many in zip(items, large, many, strict=True)
    ]


def count_listening(item: Item, index: Index) -> int:
    if item.trigger_id or item.target_id:
        return 1
    return sum(len(heard.by_id) for heard in index.listeners(item.source, item.type))


def cost_of(item: Item, index: Index) -> int:
    """An upper bound of the event's runs and decisions: one for each trigger that listens to it."""
    return max(count_listening(item, index), 1)


def within(items: Sequence[Item], index: Index, most: int, wanted_by_large: WantedByLarge = lambda _: ()) -> list[Item]:
    """The events that fit into a batch of `most` runs and decisions. An event that is too large for the remaining room waits
    for the next batch while smaller ones go on, unless one of its triggers orders events. The first event is always taken,
    at least in part. `wanted_by_large`: the triggers that may match a large event, as far as they are known."""
    taken: list[Item] = []
    room, waiting = most, set[UUID]()
    few, reserved = most // 100 + 1, most // 4  # large events leave a quarter of a batch to small ones
    for item, rules in narrowed(items, index, few, wanted_by_large):
        cost = max(len(rules), 1)
        fits = cost <= (room if cost <= few else room - reserved) or not taken
        if fits and (not waiting or waiting.isdisjoint(rule.id for rule in rules)):
            taken.append(item)
            room -= min(cost, piece_of(most))
        else:
            waiting |= {rule.id for rule in rules if rule.has_key}
    return taken


def piece_of(most: int) -> int:
    """The part of a batch that one event may take."""
    return max(most // 2, 1)


def match_items(items: Sequence[Item], index: Index, cases: CasesOf | None = None) -> list[Matched]:
    """Match these events, whatever that costs. The dispatcher leaves costly cases to `triggers.matching.slow_lane`."""
    payloads = read_payloads([item.event_id for item in items if needs_payload(item, index)])
    matched = []
    for item in items:
        payload = payloads.get(item.event_id, NOTHING)
        matched.append(judged(item, (cases or cases_of)(item, wanted_by(item, index, payload)), payload))
    return matched


def judged(
    item: Item, cases: Sequence["Case"], payload: Payload, answers: Mapping[UUID, ExpressionAnswer] | None = None
) -> Matched:
    matched = Matched(item=item)
    for decided in decide(item, cases, payload, answers=answers):
        if isinstance(decided, Refusal):
            matched.refusals.append(decided)
        elif decided is not None:
            matched.matches.append(decided)
    return matched


@dataclass(frozen=True, kw_only=True)
class Case:
    """An event and a trigger that may match it, with the refusal, if any, and the expressions to evaluate."""

    rule: Rule
    match: Match
    refusal: Refusal | None
    question: Question

    def is_costly(self, payload: Payload) -> bool:
        """Whether the expressions of the case must be evaluated in another process."""
        found = [self.rule.expression(text) for text in self.question.expressions]
        compiled = [expression for expression in found if isinstance(expression, Expression)]
        return not all(each.is_linear and (payload.is_small or not each.reads_data) for each in compiled)


def cases_of(item: Item, rules: Sequence[Rule]) -> list[Case]:
    return [case_of(item, on_terms_of(item, rule)) for rule in rules]


def on_terms_of(item: Item, rule: Rule) -> Rule:
    """The rule for an event of a backfill or a replay."""
    if item.backfill:
        return item.backfill.applied_to(rule)
    if item.priority is not None:
        return replace(rule, policy=replace(rule.policy, priority=item.priority))
    return rule


def case_of(item: Item, rule: Rule) -> Case:
    match = bare_match(item, rule)
    refusal = hold_or_stop(match) or own_change(item, match)
    if not refusal and rule.is_resuming and rule.orders_events and not item.is_resumption:
        refusal = refuse(match, Decision.Outcome.HELD, "events that the trigger held earlier run first")
    # An event that targets a trigger (a tick, a manual fire) bypasses its filter.
    filter = rule.filter if item.target_id is None else ""
    question = Question(filter=filter)
    if not refusal:
        question = replace(question, key=rule.key if rule.has_group else "", input=rule.input)
    return Case(rule=rule, match=match, refusal=refusal, question=question)


def own_change(item: Item, match: Match) -> Refusal | None:
    """A refusal if the agent itself has changed the table, unless a person replays the event on purpose."""
    rule = match.rule
    if item.changed_by != rule.agent or rule.intake.own_changes or item.is_resumption:
        return None
    return refuse(
        match, Decision.Outcome.LOOP, f"a run of {rule.agent} made this change, and own_changes of the trigger is off"
    )


def decide(
    item: Item,
    cases: Sequence[Case],
    payload: Payload,
    evaluator: Evaluator | None = None,
    answers: Mapping[UUID, ExpressionAnswer] | None = None,
) -> list[Match | Refusal | None]:
    """The result of each case; None: the event does not pass the filter. With an `evaluator`, nothing is evaluated in this
    process; with `answers`, those of costly cases are there."""
    costly = [case for case in cases if case.question.expressions and (evaluator or case.is_costly(payload))]
    if answers is None and costly:
        found = (evaluator or shared).answers(subject_of(item, payload), [case.question for case in costly])
        answers = {case.rule.id: answered for case, answered in zip(costly, found, strict=True)}
    known, read, filtered = answers or {}, EventRead(item, payload), dict[str, ExpressionAnswer]()
    return [judge(case, known.get(case.rule.id) or answer_of(case, read, payload, filtered)) for case in cases]


def answer_of(
    case: Case, read: "EventRead", payload: Payload, filtered: dict[str, ExpressionAnswer]
) -> ExpressionAnswer:
    """`filtered`: the answers to filters of this event. A text that many triggers have as their filter is evaluated once."""
    question, compiled = case.question, case.rule.compiled
    if question.filter:
        found = filtered.get(question.filter)
        if found is None:
            only = Question(filter=question.filter)
            found = filtered[question.filter] = answer(only, read, compiled, payload.without_data)
        if found.error or not found.passes or not (question.key or question.input):
            return found
        question = replace(question, filter="")
    return answer(question, read, compiled, payload.without_data)


class EventRead:
    """The event for expressions, converted at their first call."""

    def __init__(self, item: Item, payload: Payload) -> None:
        self.item, self.payload = item, payload

    def __call__(self) -> Any:
        return self.context

    @cached_property
    def context(self) -> Any:
        return context_of(cel_event(self.item, self.payload.value))


def judge(case: Case, answer: ExpressionAnswer) -> Match | Refusal | None:
    if answer.error:
        return refuse(case.match, Decision.Outcome.ERROR, answer.error)
    if not answer.passes:
        return None
    if case.refusal:
        return case.refusal
    if case.rule.has_bare_key:
        return replace(case.match, key=answer.key)
    if not case.rule.has_group and not case.rule.input:
        return case.match
    group = group_of(case.rule, answer.key)
    key = group if case.rule.has_key else None
    return replace(case.match, group=group, key=key, input=answer.input if case.rule.input else None)


def wanted_by(item: Item, index: Index, payload: Payload | None = None, fields: FieldOf | None = None) -> list[Rule]:
    """The triggers that may match the event; with its payload, or its `fields`, without triggers whose filters are
    known to be false.
    """
    aimed_at = item.trigger_id or item.target_id
    if aimed_at is None:
        field_of = fields if payload is None else partial(field_of_event, item, payload)
        return index.candidates(item.source, item.type, field_of)
    return [index.by_id[aimed_at]] if aimed_at in index.by_id else []


def needs_payload(item: Item, index: Index) -> bool:
    """Whether any expression for the event may read its data."""
    if item.trigger_id or item.target_id:
        return any(rule.reads_data for rule in wanted_by(item, index))
    return any(heard.reads_data for heard in index.listeners(item.source, item.type))


def field_of_event(item: Item, payload: Payload, path: Path) -> Any:
    """The value at this path below `event`, or MISSING."""
    if path[0] != "data":
        return cel_event(item, None)[path[0]]
    return field_at(payload.value, path[1:])


def subject_of(item: Item, payload: Payload) -> Subject:
    envelope = {**cel_event(item, None), "time": item.time.isoformat()}
    return Subject(envelope=envelope, data=payload.text, without_data=payload.without_data)


def cel_event(item: Item, data: Any) -> dict[str, Any]:
    """`event` for filters, keys and input mappings."""
    return {
        "id": str(item.event_id), "type": item.type, "source": item.source, "subject": item.subject, "time": item.time, "data": data,
    }  # fmt: skip


def bare_match(item: Item, rule: Rule) -> Match:
    return Match(
        rule=rule, event_ids=[item.event_id], root_id=item.root_id, depth=item.depth, chain=item.chain, replay_id=item.replay_id,
        is_tainted=item.is_tainted, reports=item.reports,
    )  # fmt: skip
