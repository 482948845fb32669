"""Costly matching beside the dispatcher, so that no expression and no payload holds up the dispatch of other events.

A case is costly if its expressions must be evaluated in another process; an event is large if the dispatcher's thread should not
read its payload. Threads read such payloads, and ask evaluators of their own:

- The quick lanes give each trigger QUICK seconds of processor time on an event.
- A case that needs more goes on in the slow lane, within the limits of the settings. For a minute, the trigger's cases on events
  of this size or larger start there.

The dispatcher waits PATIENCE for answers. Then it dispatches what is answered, and holds the event: it is not read again until the
rest is answered, and later events wait for it only at triggers that order their events. No state is stored: the event stays
undispatched, and the next dispatch, by any dispatcher, skips triggers that already have a run or a decision.
"""

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from uuid import UUID

from triggers.matching.index import Index, Rule
from triggers.matching.lanes import LARGEST_QUICK, Job, Known, Lanes, parted
from triggers.matching.match import (
    Case,
    CasesOf,
    Matched,
    cases_of,
    judged,
    needs_payload,
    wanted_by,
)
from triggers.matching.payload import NOTHING, UNREAD, Payload, read_payloads
from triggers.matching.pending import Identity, Item

PATIENCE = 0.03  # seconds of a batch
MOST_HELD = 2_000  # events; further ones are read again by each batch


@dataclass(kw_only=True)
class Plan:
    """An event and its cases; None: its payload must be read first. `payload`: UNREAD if lanes read it."""

    item: Item
    cases: Sequence[Case] | None = None
    payload: Payload

    @cached_property
    def costly(self) -> list[Case]:
        return [case for case in self.cases or () if case.is_costly(self.payload)]


class Costly:
    """The dispatcher's side: used by its thread alone. It matches events with the answers of the lanes, and holds those that wait.

    `others`: the same for expressions of subscriptions and switches, with lanes of its own, so that neither waits for the other. It
    only answers; what waits for its answers is held here."""

    def __init__(self, cases: CasesOf = cases_of, others: "Costly | None" = None) -> None:
        self.cases_of, self.others = cases, others
        self.known: dict[Identity, Known] = {}
        self.lanes = Lanes(self.known)
        # Another dispatcher may have dispatched parts of the events up to this one; None: of any.
        self.since: int | None = None

    # Reading

    @property
    def held(self) -> list[Identity]:
        return [identity for identity, known in self.known.items() if known.is_held]

    @property
    def is_running(self) -> bool:
        return any(map(self._is_running, self.known))

    def ready(self) -> list[Identity]:
        """The held events to dispatch again, in order: those that wait for nothing any more, and those with news."""
        self.lanes.collect()
        if self.others:
            self.others.lanes.collect()
        found, blocked = list[Identity](), set[UUID]()
        for known in self._held_in_order():
            is_over = not self._is_running(known.item.identity) and known.behind.isdisjoint(blocked)
            if is_over or self._has_news(known, blocked):
                found.append(known.item.identity)
            if not is_over:
                blocked |= known.blocks
        return found

    def _is_running(self, identity: Identity) -> bool:
        known = self.known.get(identity)
        return bool(known and known.is_running) or bool(self.others and self.others._is_running(identity))

    def _has_news(self, known: Known, blocked: Set[UUID]) -> bool:
        sent = self.others and self.others.known.get(known.item.identity)
        return known.has_news(blocked) or bool(sent and sent.has_news(frozenset()))

    def wanted(self, item: Item) -> Sequence[Rule]:
        """The triggers that may match a large event, as far as they are known."""
        known = self.known.get(item.identity)
        return (known.wanted if known else None) or []

    def close(self) -> None:
        """End the threads; for tests, since a dispatcher's end with it."""
        self.lanes.close()
        if self.others:
            self.others.close()

    def forget(self, identities: Iterable[Identity]) -> None:
        for identity in identities:
            self.known.pop(identity, None)
            if self.others:
                self.others.known.pop(identity, None)

    def settled(self, matched: Sequence[Matched]) -> int:
        """Note that these events were dispatched with the known answers, or a part of a large one; return the number of events held
        from now on.
        """
        before = count = len(self.held)
        for one in matched:
            if one.later:
                self.known.setdefault(one.item.identity, Known(item=one.item))  # the next batch may be a larger one
                continue
            if not one.is_partial:
                self.forget([one.item.identity])
                continue
            known = self.known.setdefault(one.item.identity, Known(item=one.item))
            if known.is_held or count < MOST_HELD:
                count += not known.is_held
                known.is_held, known.behind, known.blocks = True, one.behind, one.blocks
                known.told = frozenset(known.answers) - one.behind
                if self.others and (sent := self.others.known.get(one.item.identity)):
                    sent.told = frozenset(sent.answers)
        for costly in (self, self.others):
            if costly and len(costly.known) > 2 * MOST_HELD:
                held = set(self.held)
                for identity in costly.known.keys() - held:
                    del costly.known[identity]
        return max(count - before, 0)

    def _held_in_order(self) -> list[Known]:
        return sorted((known for known in self.known.values() if known.is_held), key=lambda known: known.item.seq)

    # Matching

    def match(self, items: Sequence[Item], index: Index, patience: float = PATIENCE) -> list[Matched]:
        """Match these events, which are in order, as far as their answers arrive within `patience`."""
        payloads = read_payloads([item.event_id for item in items if not item.is_large and needs_payload(item, index)])
        plans = [self._plan(item, index, payloads.get(item.event_id, NOTHING)) for item in items]
        asked = [plan.item for plan in plans if self._ask(plan, index)]
        if asked:
            self.lanes.wait({item.identity for item in asked}, patience)
            plans = [plan if plan.cases is not None else self._plan(plan.item, index, NOTHING) for plan in plans]
        own = {item.identity for item in items}
        earlier = [known for known in self._held_in_order() if known.item.identity not in own]
        blocked, matched = set[UUID](), list[Matched]()
        for plan in plans:
            while earlier and earlier[0].item.seq < plan.item.seq:
                blocked |= earlier.pop(0).blocks
            matched.append(self._match(plan, index, blocked))
            blocked |= matched[-1].blocks
        return matched

    def _plan(self, item: Item, index: Index, payload: Payload) -> Plan:
        if not (item.is_large and needs_payload(item, index)):
            return Plan(item=item, cases=self.cases_of(item, wanted_by(item, index, payload)), payload=payload)
        known = self.known.get(item.identity)
        if known is None or known.wanted is None or known.listening != wanted_by(item, index):
            return Plan(item=item, payload=UNREAD)
        return Plan(item=item, cases=self.cases_of(item, known.wanted), payload=UNREAD)

    def _ask(self, plan: Plan, index: Index) -> bool:
        """Begin the costly cases of the event that have not begun; return whether to wait for a quick answer."""
        item = plan.item
        if plan.cases is None:
            known = self.known.setdefault(item.identity, Known(item=item))
            if known.is_being_read or known.error:
                return False
            known.is_being_read, known.wanted, known.listening = True, None, wanted_by(item, index)
            left = frozenset(rule.id for rule in known.listening if self.lanes.is_slow(rule.id, item))
            job = Job(item=item, index=index, cases_of=self.cases_of, slow=left)
            return self.lanes.submit(job, is_slow=item.bytes > LARGEST_QUICK)
        if not plan.costly:
            return False
        known = self.known.setdefault(item.identity, Known(item=item))
        new = [] if known.error else [case for case in plan.costly if not known.is_asked(case)]
        slow, quick = parted(new, lambda case: self.lanes.is_slow(case.rule.id, item))
        for case in new:
            known.asked[case.rule.id] = case.question
            known.answers.pop(case.rule.id, None)
        known.slow |= {case.rule.id for case in slow}
        read = None if plan.payload is UNREAD else plan.payload
        if slow:
            self.lanes.submit(Job(item=item, cases=slow, payload=read), is_slow=True)
        if not quick:
            return False
        return self.lanes.submit(Job(item=item, cases=quick, payload=read), is_slow=item.bytes > LARGEST_QUICK)

    def _match(self, plan: Plan, index: Index, blocked: set[UUID]) -> Matched:
        item, known = plan.item, self.known.get(plan.item.identity)
        if known and known.error:
            del self.known[item.identity]
            raise known.error
        if plan.cases is None:
            ordering = frozenset(rule.id for rule in wanted_by(item, index) if rule.has_group)
            return Matched(item=item, is_partial=True, blocks=ordering, behind=ordering & blocked)
        answers = {case.rule.id: known.answer(case) if known else None for case in plan.costly}
        behind = frozenset(case.rule.id for case in plan.cases if case.rule.id in blocked and case.rule.has_group)
        missing = behind | {id for id, answer in answers.items() if answer is None}
        if missing and item.is_resumption:
            missing = frozenset(case.rule.id for case in plan.cases)  # a redispatch is not dispatched in part
        if missing:
            known = self.known.setdefault(item.identity, Known(item=item))
        matched = judged(
            item,
            [case for case in plan.cases if case.rule.id not in missing],
            NOTHING if plan.payload is UNREAD else plan.payload,
            {id: answer for id, answer in answers.items() if answer is not None},
        )
        matched.is_partial, matched.behind = bool(missing), behind
        matched.blocks = frozenset(
            case.rule.id for case in plan.cases if case.rule.id in missing and case.rule.has_group
        )
        is_older = self.since is None or item.seq <= self.since
        matched.may_be_settled = not item.is_resumption and (is_older or known is not None)
        return matched
