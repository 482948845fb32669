"""Decisions as table rows: the reason why an event started no run of its own, or started it later."""

from typing import Any

from config.console.parts.links import run_link
from config.console.parts.moments import moment
from triggers.matching.matches import IS_PAUSED
from triggers.models import Decision

WAS_PAUSED = "the trigger was paused"


def reason_of(decision: Decision) -> str:
    """The recorded reason as a sentence, and a later action by a person."""
    meaning = str(decision.get_outcome_display())
    if not decision.reason:
        return meaning
    if decision.outcome == Decision.Outcome.RESUMED:
        # The reason is that of the first decision.
        return f"At first: {decision.reason.replace(IS_PAUSED, WAS_PAUSED)}. It ran later."
    is_bare = decision.outcome in (Decision.Outcome.DROPPED, Decision.Outcome.QUIET)
    return f"{meaning}: {decision.reason}" if is_bare else decision.reason


def cells_of(decision: Decision) -> tuple[Any, ...]:
    """Outcome, reason, run concerned, when."""
    run = run_link(decision.run_id) if decision.run_id else "–"
    return decision.outcome, reason_of(decision), run, moment(decision.created_at)
