"""Whether an event that matched a trigger becomes a run now, later, or not at all; each "not" has a reason.

Concurrency keys are decided under their advisory locks, which the dispatcher holds while it calls this.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.enqueue import NewRun
from runs.ids import run_id
from runs.keys import KeyState
from triggers.matching import Rule
from triggers.models import Decision, Trigger

Outcome = Decision.Outcome


@dataclass(frozen=True, kw_only=True)
class Match:
    """An event that passed a trigger's filter, with its key and input; the unit admission decides on."""

    rule: Rule
    event_id: UUID
    root_id: UUID
    depth: int
    replay_id: UUID
    key: str | None = None
    input: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """A Decision to be recorded."""

    event_id: UUID
    trigger_id: UUID
    replay_id: UUID
    outcome: Decision.Outcome
    reason: str = ""
    run_id: UUID | None = None


def refuse(match: Match, outcome: Decision.Outcome, reason: str, run_id: UUID | None = None) -> Refusal:
    return Refusal(
        event_id=match.event_id,
        trigger_id=match.rule.id,
        replay_id=match.replay_id,
        outcome=outcome,
        reason=reason,
        run_id=run_id,
    )


def hold_or_stop(match: Match) -> Refusal | None:
    """What can be refused without looking at any key."""
    if not match.rule.enabled:
        return refuse(match, Outcome.DISABLED, "the event was meant for this trigger, which is disabled")
    if match.rule.problem:
        return refuse(match, Outcome.ERROR, match.rule.problem)
    if match.depth > settings.WAKEFUL_MAX_DEPTH:
        return refuse(
            match,
            Outcome.LOOP,
            f"its causal chain is {match.depth} deep; WAKEFUL_MAX_DEPTH is {settings.WAKEFUL_MAX_DEPTH}",
        )
    if match.rule.is_paused:
        return refuse(match, Outcome.HELD, f"the trigger is paused: {match.rule.paused_reason}")
    return None


def admit(matches: Iterable[Match], keys: Mapping[str, KeyState]) -> list[NewRun | Refusal]:
    """Decide in the given order; `keys` is brought up to date with what is admitted."""
    return [_admit(match, keys) for match in matches]


def _admit(match: Match, keys: Mapping[str, KeyState]) -> NewRun | Refusal:
    id = run_id(match.rule.id, match.event_id, match.replay_id)
    slot = None
    if match.key is not None:
        state = keys[match.key]
        if match.rule.overlap == Trigger.Overlap.SKIP and state.live:
            return refuse(match, Outcome.OVERLAP, "a run of its key was live", state.first)
        slot = 1 if not state.live else None
        state.live += 1
        state.first = state.first or id
    return NewRun(
        id=id,
        agent=match.rule.agent,
        trigger=match.rule.slug,
        trigger_id=match.rule.id,
        event_ids=[match.event_id],
        policy=match.rule.policy,
        root_id=match.root_id,
        replay_id=match.replay_id,
        depth=match.depth,
        input=match.input,
        has_input=match.input is not None,
        key=match.key,
        slot=slot,
    )
