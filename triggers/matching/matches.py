"""The results of matching for admission: a match of an event, or a decision that no key, rate or window can change."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.enqueue import Chain, in_words
from runs.transitions.reports import Asked
from triggers.django_tasks.names import AGENT as DJANGO_TASK
from triggers.matching.index import Rule
from triggers.models import Decision

IS_PAUSED = "the trigger is paused"

Outcome = Decision.Outcome
Group = tuple[UUID, str, UUID]  # trigger, key, replay


@dataclass(frozen=True, kw_only=True)
class Match:
    """The unit of admission: events for one run of a trigger. Either one event that passed the filter, or all events that a
    window collected. Rates and windows count by `group`, overlap by `key`.
    """

    rule: Rule
    event_ids: Sequence[UUID]
    root_id: UUID
    depth: int
    chain: Chain
    replay_id: UUID
    group: str = ""
    key: str | None = None
    input: Mapping[str, Any] | None = None
    is_tainted: bool = False
    reports: Asked = field(default=(), compare=False)  # that people asked for when they fired the trigger

    @property
    def window(self) -> Group:
        return self.rule.id, self.group, self.replay_id

    @property
    def led_here(self) -> str:
        return in_words([*self.chain, self.rule.slug])

    @property
    def loop(self) -> str | None:
        """The rate key of the loop that this match closes; None: it closes no loop. All Django tasks have one trigger, so a task that
        enqueues others looks like one; how deep they go is limited all the same."""
        if self.rule.agent == DJANGO_TASK:
            return None
        return f"loop:{self.chain[-1]}:{self.rule.id}" if self.rule.slug in self.chain else None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A decision to record for each of the events."""

    event_ids: Sequence[UUID]
    trigger_id: UUID
    replay_id: UUID
    outcome: Decision.Outcome
    reason: str = ""
    run_id: UUID | None = None
    reports: Asked = field(default=(), compare=False)


def refuse(match: Match, outcome: Decision.Outcome, reason: str, run_id: UUID | None = None) -> Refusal:
    return Refusal(
        event_ids=match.event_ids,
        trigger_id=match.rule.id,
        replay_id=match.replay_id,
        outcome=outcome,
        reason=reason,
        run_id=run_id,
        reports=match.reports,
    )


def hold_or_stop(match: Match) -> Refusal | None:
    """A refusal that does not depend on keys, if any."""
    if not match.rule.enabled:
        return refuse(match, Outcome.DISABLED, "the event targets this trigger, which is disabled")
    if match.rule.problem:
        return refuse(match, Outcome.ERROR, match.rule.problem)
    if match.depth > settings.WAKEFUL_MAX_DEPTH:
        return refuse(
            match,
            Outcome.LOOP,
            f"its causal chain is {match.depth} deep, WAKEFUL_MAX_DEPTH is {settings.WAKEFUL_MAX_DEPTH}: {match.led_here}",
        )
    if match.rule.is_paused:
        return refuse(match, Outcome.HELD, f"{IS_PAUSED}: {match.rule.paused_reason}")
    return None
