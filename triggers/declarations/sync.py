"""Write the triggers and schedules that agents declare in code to the database (`manage.py sync_agents`).

`Trigger.declared` holds the declaration of the last sync, field by field. A field whose row differs from it was edited by
an operator, who owns it from then on (`Trigger.overrides`): no deploy changes it. A sync never changes whether a trigger is
enabled, with one exception: it disables a trigger whose declaration is gone, and enables it when the declaration returns.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import transaction
from django_celery_beat.models import PeriodicTask

from agents.exceptions import DeclarationError
from agents.guards.atomic import not_in_atomic_body
from agents.kernel.tool_cap import narrowed
from agents.models import PromptAgent
from runs.db.sql import fetch
from runs.models.audit import record_about
from triggers.declarations.sources import source_problems, sync_sources
from triggers.declarations.wanted import Wanted, wanted_triggers
from triggers.exceptions import RuleError
from triggers.models import Schedule, Trigger
from triggers.schedules import rows
from triggers.schedules.calendars import calendars_named
from triggers.schedules.preview import is_past
from triggers.schedules.rows import VANISHED
from triggers.schedules.rules.as_json import rule_as_json
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy

COLUMNS = ("agent", "source", "types", "filter", "input", "key", "key_limit", "overlap", "policy", "tools")
LOCK = 0x5A6E  # one sync or import at a time
TAKE_LOCK = "SELECT pg_advisory_xact_lock(%s::bigint)"


@dataclass(kw_only=True)
class Change:
    """A change of a trigger by a sync."""

    slug: str
    action: str
    fields: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.action} {self.slug}" + (f" ({', '.join(self.fields)})" if self.fields else "")


@not_in_atomic_body
def sync(by: str = "sync_agents") -> list[Change]:
    """Make the rows match the code's declarations and return the changes. Raises DeclarationError before any write."""
    wanted = wanted_triggers()
    with transaction.atomic():
        fetch(TAKE_LOCK, [LOCK])
        known = {trigger.slug: trigger for trigger in Trigger.objects.select_for_update(no_key=True)}
        wanted = [each.as_first_seen(known.get(each.slug)) for each in wanted]
        wanted, left = _without_those_of_prompt_agents(wanted, known)
        _take_over(wanted, known)
        _refuse_taken(wanted, known)
        sources = [each.source for each in wanted if each.source]
        made = sync_sources(sources, by)
        changes = [_sync_one(each, known.get(each.slug)) for each in wanted]
        slugs = {each.slug for each in wanted}
        changes += [
            _vanish(trigger)
            for trigger in known.values()
            if trigger.declared is not None and trigger.slug not in slugs and VANISHED not in trigger.declared
        ]
        changed = [change for change in changes if change]
        _record(changed, by)
    waiting = [Change(slug=f"source {one.slug}", action="waiting", fields=[one.waits]) for one in sources if one.waits]
    return [*changed, *[Change(slug=f"source {slug}", action=action) for slug, action in made], *waiting, *left]


def _without_those_of_prompt_agents(
    wanted: Sequence[Wanted], known: Mapping[str, Trigger]
) -> tuple[list[Wanted], list[Change]]:
    """A prompt agent that has the name of an agent in code is a problem that people solve (`config.health.problems`); until then it
    has its trigger, and the deploy goes on."""
    made = set(PromptAgent.objects.filter(deleted_at=None).values_list("name", flat=True))
    taken = {
        each.slug
        for each in wanted
        if each.columns["agent"] in made and (trigger := known.get(each.slug)) and trigger.declared is None
    }
    why = "a prompt agent has this name: rename the agent in code, or delete the prompt agent"
    left = [Change(slug=slug, action="left alone", fields=[why]) for slug in sorted(taken)]
    return [each for each in wanted if each.slug not in taken], left


def _take_over(wanted: Sequence[Wanted], known: Mapping[str, Trigger]) -> None:
    """A trigger that a deleted prompt agent has left is the code's from now on, if it has the name: no person can delete it."""
    deleted = set(PromptAgent.objects.exclude(deleted_at=None).values_list("name", flat=True))
    for each in wanted:
        trigger = known.get(each.slug)
        if trigger and trigger.declared is None and trigger.agent == each.columns["agent"] and trigger.agent in deleted:
            row = _row(trigger, _own_schedule(trigger))
            trigger.declared = {**row, VANISHED: {"trigger": True, "schedule": "rule" in row}}


def _record(changes: Sequence[Change], by: str) -> None:
    ids = dict(Trigger.objects.filter(slug__in=[change.slug for change in changes]).values_list("slug", "id"))
    for change in changes:
        record_about(by, change.action, "trigger", str(ids[change.slug]), fields=change.fields)


def _refuse_taken(wanted: Sequence[Wanted], known: Mapping[str, Trigger]) -> None:
    problems = []
    for each in wanted:
        trigger = known.get(each.slug)
        tasks = PeriodicTask.objects.filter(name=each.slug).exclude(wakeful__trigger__slug=each.slug)
        if trigger and trigger.declared is None:
            problems.append(
                f"trigger {each.slug!r} was created by an operator; delete it, or give the declared trigger another slug="
            )
        elif each.rule and tasks.exists():
            problems.append(
                f"another schedule is named {each.slug!r}; rename it, or give the declared trigger another slug="
            )
        try:
            calendars_named(each.policy.exclude)
        except RuleError as error:
            problems.append(
                f"schedule {each.slug!r}: {error}; create it first, in the console under Exclusion calendars or with the API"
            )
    problems += source_problems([each.source for each in wanted if each.source])
    if problems:
        raise DeclarationError("\n".join(problems))


def _sync_one(wanted: Wanted, trigger: Trigger | None) -> Change | None:
    if trigger is None:
        return _create(wanted)
    schedule = declared_schedule(trigger)
    _adopt_edits(trigger, schedule)
    change = Change(slug=trigger.slug, action="changed", fields=list(_update(wanted, trigger, schedule)))
    if vanished := (trigger.declared or {}).get(VANISHED):
        _come_back(trigger, vanished)
        change.action = "enabled again"
    if trigger.declared != wanted.declared:
        trigger.declared = wanted.declared
    elif not change.fields:
        return None
    trigger.save()
    return change


def _create(wanted: Wanted) -> Change:
    trigger = Trigger.objects.create(slug=wanted.slug, declared=wanted.declared, **wanted.columns)
    change = Change(slug=trigger.slug, action="created")
    if wanted.rule:
        change.fields = [_add_schedule(trigger, wanted.rule, wanted.policy)]
    return change


def _add_schedule(trigger: Trigger, rule: Rule, policy: SchedulePolicy) -> str:
    rows.add_schedule(trigger, name=trigger.slug, rule=rule, policy=policy)
    return _in_words(rule)


def _in_words(rule: Rule) -> str:
    return f"{rule.words}: past, so it will not fire" if is_past(rule) else rule.words


def _adopt_edits(trigger: Trigger, schedule: Schedule | None) -> None:
    """Fields that differ from the last sync were edited by an operator, who owns them from now on."""
    row, declared = _row(trigger, schedule), trigger.declared or {}
    edited = {name for name, value in row.items() if name in declared and declared[name] != value}
    if not _beyond(declared.get("tools"), trigger.tools):
        edited -= {"tools"}  # the code has requested more tools since, and no operator has allowed them yet
    trigger.overrides = sorted({*trigger.overrides, *edited})


def _row(trigger: Trigger, schedule: Schedule | None) -> dict[str, Any]:
    row = {name: getattr(trigger, name) for name in COLUMNS}
    return row | {"rule": _row_rule(schedule), **SchedulePolicy.of(schedule).dump()} if schedule else row


def _row_rule(schedule: Schedule) -> Any:
    try:
        return rule_as_json(rule_of(schedule.task))
    except RuleError as error:
        return str(error)


def _update(wanted: Wanted, trigger: Trigger, schedule: Schedule | None) -> Iterator[str]:
    """Update fields that no operator owns to the code's values; yields the names of the changed fields."""
    for name, value in wanted.columns.items():
        if name in trigger.overrides:
            continue
        if name == "tools" and (more := _beyond(trigger.tools, value)):
            value = _without(trigger.tools, value)
            yield f"tools: the code requests {more}, which an operator must allow first"
        if getattr(trigger, name) != value:
            setattr(trigger, name, value)
            yield name
    yield from _update_schedule(wanted, trigger, schedule)


def _beyond(cap: Sequence[str] | None, wanted: Sequence[str] | None) -> str:
    """The tools that are outside of the trigger's cap: code may narrow the cap, and never widens it."""
    if cap is None:
        return ""
    return "all tools" if wanted is None else ", ".join(sorted(set(wanted) - set(cap)))


def _without(cap: Sequence[str] | None, wanted: Sequence[str] | None) -> list[str] | None:
    tools = narrowed(cap, wanted)
    return None if tools is None else sorted(tools)


def _update_schedule(wanted: Wanted, trigger: Trigger, schedule: Schedule | None) -> Iterator[str]:
    if wanted.rule is None:
        if schedule:
            rows.remove(schedule)
            yield "no schedule any more"
    elif schedule is None:
        yield _add_schedule(trigger, wanted.rule, wanted.policy)
    else:
        if "rule" not in trigger.overrides and _row_rule(schedule) != rule_as_json(wanted.rule):
            rows.set_rule(schedule, wanted.rule)
            yield _in_words(wanted.rule)
        now = SchedulePolicy.of(schedule)
        changed = [name for name in wanted.policy.changes_from(now) if name not in trigger.overrides]
        if changed:
            replace(now, **{name: getattr(wanted.policy, name) for name in changed}).apply(schedule)
            yield from changed


def _vanish(trigger: Trigger) -> Change:
    schedule = declared_schedule(trigger)
    was_on = {"trigger": trigger.enabled, "schedule": schedule is not None and schedule.task.enabled}
    trigger.declared = {**(trigger.declared or {}), VANISHED: was_on}
    trigger.enabled = False
    trigger.save()
    if schedule and was_on["schedule"]:
        rows.set_enabled(schedule, False)
    return Change(slug=trigger.slug, action="disabled", fields=["its declaration is gone"])


def _come_back(trigger: Trigger, was_on: Mapping[str, bool]) -> None:
    trigger.enabled = was_on["trigger"]
    schedule = declared_schedule(trigger)
    if schedule and was_on["schedule"]:
        rows.set_enabled(schedule, True)


def declared_schedule(trigger: Trigger) -> Schedule | None:
    """The schedule that the code declares. The trigger may have others, added by operators and by its runs."""
    return _own_schedule(trigger) if "rule" in (trigger.declared or {}) else None


def _own_schedule(trigger: Trigger) -> Schedule | None:
    others = trigger.schedules.exclude(task__name__startswith=f"{trigger.slug}/")
    return others.select_related(*rows.RELATED).order_by("id").first()
