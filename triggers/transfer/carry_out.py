"""A file of `triggers.transfer.export` brought into this system: looked at whole first, then carried out whole or not at all.

What the file says is made so; what it does not name stays as it is, and nothing is deleted. What it changes of a trigger
that the code declares is the operator's from then on, as by an edit in the admin.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction

from agents.guards.atomic import not_in_atomic_body
from runs.audit import record
from runs.exceptions import IllegalState
from triggers.declarations.overrides import override
from triggers.declarations.sync import COLUMNS, LOCK
from triggers.exceptions import RuleError
from triggers.models import Schedule, Source, Trigger
from triggers.schedules.calendars import change_calendar, create_calendar
from triggers.schedules.edit import (
    create_schedule,
    edit_schedule,
    pause_schedule,
    resume_schedule,
    rule_here,
)
from triggers.schedules.preview import DEFAULT, is_past
from triggers.schedules.rules.as_json import rule_as_json
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.webhooks.scheme import schemes
from triggers.transfer.check import Entry, Here, ImportRefused, policy_in, problems_of, rule_in


@dataclass(frozen=True, kw_only=True)
class Change:
    """What an import makes of one thing: for each field what it was, and what it is."""

    what: str
    is_new: bool
    fields: dict[str, tuple[Any, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{'+' if self.is_new else '~'} {self.what}"]
        for name, (before, after) in self.fields.items():
            lines.append(f"    {name}: {after!r}" if self.is_new else f"    {name}: {before!r} → {after!r}")
        return "\n".join(lines)


@dataclass(kw_only=True)
class Import:
    """What changed, or would, and what an operator should know."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@not_in_atomic_body
def import_triggers(content: Any, *, by: str, dry_run: bool = False) -> Import:
    """Make what the file says true here, in one transaction. ImportRefused says all that is wrong, before anything is."""
    done = Import()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [LOCK])  # no sync of the agents meanwhile
        here = Here()
        if problems := list(problems_of(content, here)):
            raise ImportRefused(problems)
        for entry in content.get("sources", ()):
            _import_source(entry, here, done, by)
        for entry in content.get("triggers", ()):
            _import_trigger(entry, here, done, by)
        for entry in content.get("calendars", ()):
            _import_calendar(entry, here, done, by)
        for entry in content.get("schedules", ()):
            try:
                _import_schedule(entry, here, done, by)
            except RuleError as error:
                raise ImportRefused([f"schedule {entry['name']}: {error}"]) from error
        transaction.set_rollback(dry_run)
    return done


# Looking at it whole


# Carrying it out


def _import_source(entry: Entry, here: Here, done: Import, by: str) -> None:
    source = here.sources.get(entry["slug"])
    wanted = {name: entry[name] for name in ("enabled", "settings") if name in entry}
    if source is None:
        source = Source.objects.create(slug=entry["slug"], kind=entry["kind"], **wanted)
        here.sources[source.slug] = source
        record(by, "import", source, kind=source.kind, **wanted)
        done.changes.append(_new(f"source {source.slug}", {"kind": source.kind, **wanted}))
        if schemes()[source.kind].needs_secret:
            done.notes.append(
                f"source {source.slug} has no secret yet: give it one in the admin, and its sender the address"
            )
        return
    if changed := _differences(wanted, lambda name: getattr(source, name)):
        for name, (_, value) in changed.items():
            setattr(source, name, value)
        source.save(update_fields=list(changed))
        record(by, "import", source, **{name: value for name, (_, value) in changed.items()})
        done.changes.append(Change(what=f"source {source.slug}", is_new=False, fields=changed))


def _import_trigger(entry: Entry, here: Here, done: Import, by: str) -> None:
    trigger = here.triggers.get(entry["slug"])
    wanted = {name: entry[name] for name in (*COLUMNS, "enabled") if name in entry and name != "agent"}
    if trigger is None:
        trigger = Trigger.objects.create(slug=entry["slug"], agent=entry["agent"], **wanted)
        here.triggers[trigger.slug] = trigger
        record(by, "import", trigger, agent=trigger.agent, **wanted)
        done.changes.append(_new(f"trigger {trigger.slug}", {"agent": trigger.agent, **wanted}))
    elif changed := _differences(wanted, lambda name: getattr(trigger, name)):
        override(trigger, {name: value for name, (_, value) in changed.items()}, by=by)
        done.changes.append(Change(what=f"trigger {trigger.slug}", is_new=False, fields=changed))


def _import_calendar(entry: Entry, here: Here, done: Import, by: str) -> None:
    slug, calendar = entry["slug"], here.calendars.get(entry["slug"])
    if calendar is None:
        here.calendars[slug] = create_calendar(slug=slug, days=entry.get("days", ""), by=by)
        done.changes.append(_new(f"calendar {slug}", {"days": entry.get("days", "")}))
    elif changed := _differences({"days": entry.get("days", calendar.days)}, lambda _: calendar.days):
        change_calendar(calendar, days=entry["days"], by=by)
        done.changes.append(Change(what=f"calendar {slug}", is_new=False, fields=changed))


def _import_schedule(entry: Entry, here: Here, done: Import, by: str) -> None:
    name, rule = entry["name"], rule_in(entry)
    schedule = here.schedules.get(name)
    before = rule_here(schedule) if schedule else None
    if rule and is_past(rule):
        if rule != before:
            done.notes.append(f"schedule {name} is left out: {rule.words} is past")
        return
    policy = policy_in(entry, schedule)
    if schedule is None:
        if rule:
            _create_schedule(entry, rule, policy, here.triggers[entry["trigger"]], done, by)
        return
    now = SchedulePolicy.of(schedule)
    changed = {field: (now.dump()[field], policy.dump()[field]) for field in policy.changes_from(now)}
    if rule and before != rule:
        changed["rule"] = (before and rule_as_json(before), rule_as_json(rule))
    if changed:
        edit_schedule(schedule, rule=rule, policy=policy, by=by)
    if entry.get("enabled", schedule.task.enabled) != schedule.task.enabled and _switch(schedule, entry, done, by):
        changed["enabled"] = (schedule.task.enabled, entry["enabled"])
    if changed:
        done.changes.append(Change(what=f"schedule {name}", is_new=False, fields=changed))


def _create_schedule(entry: Entry, rule: Rule, policy: SchedulePolicy, trigger: Trigger, done: Import, by: str) -> None:
    schedule = create_schedule(name=entry["name"], trigger=trigger, rule=rule, policy=policy, by=by)
    is_on = entry.get("enabled", True)
    if not is_on:
        pause_schedule(schedule, by=by)
    chosen = {name: policy.dump()[name] for name in policy.changes_from(DEFAULT)}
    made = {"trigger": trigger.slug, **rule_as_json(rule), **chosen, "enabled": is_on}
    done.changes.append(_new(f"schedule {entry['name']}", made))


def _switch(schedule: Schedule, entry: Entry, done: Import, by: str) -> bool:
    try:
        (resume_schedule if entry["enabled"] else pause_schedule)(schedule, by=by)
    except IllegalState as refusal:
        done.notes.append(f"schedule {entry['name']} stays as it is: {refusal}")
        return False
    return True


def _differences(wanted: Entry, now: Callable[[str], Any]) -> dict[str, tuple[Any, Any]]:
    return {name: (now(name), value) for name, value in wanted.items() if now(name) != value}


def _new(what: str, fields: Entry) -> Change:
    return Change(what=what, is_new=True, fields={name: (None, value) for name, value in fields.items()})
