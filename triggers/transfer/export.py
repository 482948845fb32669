"""Triggers, their schedules with their exclusion calendars, their sources with the detectors that are armed, prompt agents, and
subscriptions as a file that another system can import.

For a trigger that the code declares, the file holds only the fields that operators have changed: the rest comes with the
code. The file contains no secrets, tokens, state or history, and of the URL of a subscription only its host: paths often are
secrets.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from agents import registry
from agents.models import PromptAgent
from triggers.declarations.sync import COLUMNS
from triggers.exceptions import RuleError
from triggers.models import ExclusionCalendar, Schedule, Source, Subscription, Trigger
from triggers.prompt_agents.as_json import exported
from triggers.schedules.edit import is_declared
from triggers.schedules.preview import is_past
from triggers.schedules.rows import RELATED, VANISHED
from triggers.schedules.rules.as_json import rule_as_json
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.kind import kinds
from triggers.sources.metrics.as_list import armed_on

FORMAT = "wakeful triggers"
VERSION = 1


@dataclass(kw_only=True)
class Export:
    """The file's content, and notes about objects that it could not include."""

    content: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def export_triggers(slugs: Collection[str] = ()) -> Export:
    """Export these triggers, or all, in a stable order. Trigger.DoesNotExist names unknown slugs."""
    triggers = Trigger.objects.order_by("slug")
    if slugs:
        triggers = triggers.filter(slug__among=list(slugs))
        if unknown := sorted(set(slugs) - {trigger.slug for trigger in triggers}):
            raise Trigger.DoesNotExist(", ".join(unknown))
    notes: list[str] = []
    deleted = set(PromptAgent.objects.exclude(deleted_at=None).values_list("name", flat=True))
    deleted -= {agent.name for agent in registry.agents_in_code()}
    kept = [trigger for trigger in triggers if not _is_left_out(trigger, deleted, notes)]
    schedules = (
        Schedule.objects.filter(trigger__id__among=[trigger.pk for trigger in kept])
        .select_related(*RELATED)
        .prefetch_related("exclude")
        .order_by("task__name")
    )
    sources = Source.objects.filter(kind__in=kinds()).prefetch_related("detectors").order_by("slug")
    if slugs:
        sources = sources.filter(slug__among=sorted({trigger.source for trigger in kept}))
    calendars = ExclusionCalendar.objects.order_by("slug")
    if slugs:
        calendars = calendars.filter(schedules__id__among=[schedule.pk for schedule in schedules]).distinct()
    agents = PromptAgent.objects.filter(deleted_at=None).order_by("name")
    if slugs:
        agents = agents.filter(name__in={trigger.agent for trigger in kept})
    content = {
        "format": FORMAT,
        "version": VERSION,
        "sources": [_source(source) for source in sources],
        "prompt_agents": [exported(agent) for agent in agents],
        "calendars": [{"slug": calendar.slug, "days": calendar.days} for calendar in calendars],
        "triggers": [_trigger(trigger) for trigger in kept],
        "subscriptions": [] if slugs else [_subscription(one) for one in Subscription.objects.order_by("slug")],
        "schedules": [entry for schedule in schedules if (entry := _schedule(schedule, notes))],
    }
    return Export(content=content, notes=notes)


def _is_left_out(trigger: Trigger, deleted: Collection[str], notes: list[str]) -> bool:
    """Another system has nothing that such a trigger could wake."""
    if VANISHED in (trigger.declared or {}):
        notes.append(f"trigger {trigger.slug} is skipped: its declaration is gone")
        return True
    if trigger.agent in deleted:
        notes.append(f"trigger {trigger.slug} is skipped: its prompt agent is deleted")
        return True
    return False


def _source(source: Source) -> dict[str, Any]:
    head = {
        "slug": source.slug,
        "kind": source.kind,
        "enabled": source.enabled,
        "settings": source.settings,
        "trusted": source.trusted,
    }
    detectors = armed_on(source)
    limits = {"limits": source.limits} if source.limits else {}
    return head | limits | ({} if detectors is None else {"detectors": detectors})


def _subscription(subscription: Subscription) -> dict[str, Any]:
    return {name: getattr(subscription, name) for name in ("slug", "address", "enabled", "sources", "types", "filter")}


def _trigger(trigger: Trigger) -> dict[str, Any]:
    head = {"slug": trigger.slug, "agent": trigger.agent, "enabled": trigger.enabled}
    fields = {name: getattr(trigger, name) for name in COLUMNS if name != "agent"}
    if trigger.declared is None:
        return {**head, **fields}
    changed = {name: value for name, value in fields.items() if trigger.declared.get(name, value) != value}
    return {**head, "declared": True, **changed}


def _schedule(schedule: Schedule, notes: list[str]) -> dict[str, Any] | None:
    """None: its rule cannot be exported, or is past."""
    task, trigger = schedule.task, schedule.trigger
    assert trigger is not None  # noqa: S101  (selected by trigger)
    try:
        rule = rule_of(task)
    except RuleError as error:
        notes.append(f"schedule {task.name} is skipped: {error}")
        return None
    head = {"name": task.name, "trigger": trigger.slug, "enabled": task.enabled}
    said, policy = rule_as_json(rule), SchedulePolicy.of(schedule).dump()
    if is_declared(schedule):
        declared = trigger.declared or {}
        # A rule that differs is exported whole.
        said = said if said != declared["rule"] else {}
        changed = {name: value for name, value in policy.items() if declared.get(name, value) != value}
        return {**head, "declared": True, **said, **changed}
    return None if is_past(rule) else {**head, **said, **policy}
