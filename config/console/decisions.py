"""Why an event that matched started no run, as a table's row says it."""

from typing import Any

from config.console.links import run_link
from config.console.moments import moment
from triggers.models import Decision

AFTERWARDS = (Decision.Outcome.RESUMED, Decision.Outcome.DROPPED)


def reason_of(decision: Decision) -> str:
    """In words: the recorded reason, and what a person made of it since."""
    meaning = str(decision.get_outcome_display())
    if not decision.reason:
        return meaning
    return f"{meaning}: {decision.reason}" if decision.outcome in AFTERWARDS else decision.reason


def cells_of(decision: Decision) -> tuple[Any, ...]:
    """Outcome, reason, run concerned, when."""
    run = run_link(decision.run_id) if decision.run_id else "–"
    return decision.outcome, reason_of(decision), run, moment(decision.created_at)
