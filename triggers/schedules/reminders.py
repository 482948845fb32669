"""Reminders: an agent is woken once, at an instant, with a text."""

from uuid import uuid4

from django.db import transaction
from django.utils.text import slugify

from triggers.exceptions import RuleError
from triggers.matching.trigger_policy import policy_for
from triggers.models import Schedule, Trigger
from triggers.schedules.edit import create_schedule
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

TEXT_LENGTH = 2000
NAMED = 60  # characters of the text that its name repeats


def remind(
    *, when: Rule, text: str, agent: str = "", trigger: Trigger | None = None, by: str, name: str = ""
) -> Schedule:
    """Wake an agent once, by a trigger that all its reminders share, or an existing trigger; the event's data contains
    the text (`data.text`). A late reminder still fires; then its schedule is done. RuleError: its `field` names what to
    change.
    """
    text = text.strip()
    if not text or len(text) > TEXT_LENGTH:
        raise RuleError(f"a reminder needs a text of 1 to {TEXT_LENGTH} characters", field="text")
    if bool(agent) == bool(trigger):
        raise RuleError("give either an agent or a trigger", field="agent")
    with transaction.atomic():
        return create_schedule(
            name=name or _name(text),
            rule=when,
            trigger=trigger or _trigger_for(agent),
            policy=SchedulePolicy(kind="reminder", data={"text": text}),
            by=by,
        )


def text_of(schedule: Schedule) -> str:
    """The text of a reminder; empty if the event is not a reminder."""
    data = schedule.data if schedule.kind == Schedule.Kind.REMINDER and isinstance(schedule.data, dict) else {}
    return str(data.get("text") or "")


def _name(text: str) -> str:
    words = " ".join(text.split())
    short = words if len(words) <= NAMED else f"{words[: NAMED - 1]}…"
    return f"reminder {uuid4().hex[:8]}: {short}"


def _trigger_for(agent: str) -> Trigger:
    """The trigger of reminders. Two reminders may fire at the same time, and each must start a run."""
    policy = policy_for(agent)
    slug = f"{slugify(agent)[:80]}-reminders"
    wanted = {"agent": agent, "types": [], "overlap": Trigger.Overlap.ALLOW, "policy": policy}
    trigger, _ = Trigger.objects.get_or_create(slug=slug, defaults=wanted)
    if trigger.agent != agent:
        raise RuleError(f"there is another trigger {slug!r}, of agent {trigger.agent!r}; name a trigger", field="agent")
    return trigger
