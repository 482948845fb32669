"""The terms on which a Django task was enqueued: its queue, its priority, and the time before which it does not run. One trigger wakes
all tasks, so these are in the event, and `names.INPUT` reads them from there."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import Any

from runs.models.policy import Policy
from triggers.django_tasks.names import AGENT

USUAL = 5  # the priority of a run whose task has Django's default, 0

JOINS = f"{AGENT}: a run calls one task, so its trigger must not join several events: remove batch, debounce and overlap queue_one"


def problem_of(agent: str, policy: Mapping[str, Any], overlap: str) -> str:
    """Why a trigger that is set so cannot wake tasks; empty if it can."""
    joins = policy.get("batch") or policy.get("debounce") or overlap == "queue_one"
    return JOINS if agent == AGENT and joins else ""


def terms_of(usual: Policy, asked: Mapping[str, Any] | None, now: datetime) -> tuple[Policy, datetime | None]:
    """The policy of the run, and when it starts if that is later than now. What cannot be read is as usual: an event that a person
    fires at the trigger may have any data."""
    asked = asked or {}
    queue, priority, start_at = asked.get("queue"), asked.get("priority"), _instant(asked.get("run_after"))
    return (
        replace(
            usual,
            queue=queue if isinstance(queue, str) and queue else usual.queue,
            priority=priority_of(priority) if isinstance(priority, int | float) else usual.priority,
        ),
        start_at if start_at and start_at > now else None,
    )


def priority_of(django: float) -> int:
    """Django has -100 to 100, the most urgent last; runs have 0 to 9, the most urgent first. Two priorities of Django may be one here,
    and never change places."""
    levels = ceil(django / 20) if django > 0 else -ceil(-django / 25)
    return max(0, min(USUAL - levels, 9))


def _instant(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else None
