"""Why an event started no run of its own, or only later, as a table's row says it."""

from typing import Any

from config.console.parts.links import run_link
from config.console.parts.moments import moment
from triggers.dispatch.admission import IS_PAUSED
from triggers.models import Decision

WAS_PAUSED = "the trigger was paused"


def reason_of(decision: Decision) -> str:
    """In words: the recorded reason, and what a person made of it since."""
    meaning = str(decision.get_outcome_display())
    if not decision.reason:
        return meaning
    if decision.outcome == Decision.Outcome.RESUMED:
        # The reason is the one of the first time.
        return f"At first: {decision.reason.replace(IS_PAUSED, WAS_PAUSED)}. Then it ran."
    return f"{meaning}: {decision.reason}" if decision.outcome == Decision.Outcome.DROPPED else decision.reason


def cells_of(decision: Decision) -> tuple[Any, ...]:
    """Outcome, reason, run concerned, when."""
    run = run_link(decision.run_id) if decision.run_id else "–"
    return decision.outcome, reason_of(decision), run, moment(decision.created_at)
