"""Import a transfer file, all of it or nothing: each entry calls the service that the console calls.

Only fields that the file names are changed, and nothing is deleted. A field of a declared trigger that the import changes
is owned by the operator from then on, as after an edit in the console.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.core.exceptions import ValidationError
from django.db import transaction
from django.db.models import Model

from agents.guards.atomic import not_in_atomic_body
from agents.models import PromptAgent
from agents.prompt_agents.definition import Definition
from runs.db.sql import fetch
from runs.exceptions import IllegalState
from triggers.declarations.overrides import EDITABLE, create_trigger, override
from triggers.declarations.sync import LOCK, TAKE_LOCK
from triggers.exceptions import Invalid, RuleError
from triggers.models import ExclusionCalendar, Schedule, Source, Subscription, Trigger
from triggers.outbound.edit import change_subscription, create_subscription
from triggers.prompt_agents.as_json import exported, read
from triggers.prompt_agents.edit import create_prompt_agent, edit_prompt_agent, set_budget, set_checklist
from triggers.schedules.calendars import change_calendar, create_calendar
from triggers.schedules.edit import (
    create_schedule,
    edit_schedule,
    is_declared,
    pause_schedule,
    resume_schedule,
    rule_here,
)
from triggers.schedules.preview import DEFAULT, is_past
from triggers.schedules.rows import RELATED
from triggers.schedules.rules.as_json import parse_rule, rule_as_json
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import NAMES, SchedulePolicy
from triggers.sources.edit import change_source, create_source
from triggers.sources.kind import kinds
from triggers.sources.metrics.as_list import armed_on, set_detectors
from triggers.transfer.check import NAMED_BY, RULE, Entry, ImportRefused, check

Differences = dict[str, tuple[Any, Any]]  # old and new value by field


@dataclass(frozen=True, kw_only=True)
class Change:
    """The changes of an import in one object: each field's old and new value."""

    what: str
    is_new: bool
    fields: Differences = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [f"{'+' if self.is_new else '~'} {self.what}"]
        for name, (before, after) in self.fields.items():
            lines.append(f"    {name}: {after!r}" if self.is_new else f"    {name}: {before!r} → {after!r}")
        return "\n".join(lines)


@dataclass(kw_only=True)
class Import:
    """The changes made (or, in a dry run, to be made), and notes for the operator."""

    changes: list[Change] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def made(self, what: str, fields: Entry) -> None:
        self.changes.append(
            Change(what=what, is_new=True, fields={name: (None, value) for name, value in fields.items()})
        )

    def changed(self, what: str, fields: Differences) -> None:
        self.changes.append(Change(what=what, is_new=False, fields=fields))


@not_in_atomic_body
def import_triggers(content: Any, *, by: str, dry_run: bool = False) -> Import:
    """Import the file in one transaction. Raises ImportRefused with all problems; then nothing is changed."""
    check(content)
    with transaction.atomic():
        fetch(TAKE_LOCK, [LOCK])  # no sync of the agents at the same time
        importing = _Importing(by)
        importing.carry_out(content)
        if importing.problems:
            raise ImportRefused(importing.problems)
        transaction.set_rollback(dry_run)
    return importing.done


class _Importing:
    """Passes each entry to its service, in its own savepoint, so that all problems of a file are reported at once."""

    def __init__(self, by: str) -> None:
        self.by = by
        self.done = Import()
        self.problems: list[str] = []
        self.refused: set[tuple[str, str]] = set()
        self.triggers = {one.slug: one for one in Trigger.objects.select_for_update(no_key=True).order_by("slug")}

    def carry_out(self, content: Mapping[str, Any]) -> None:
        steps = {
            "sources": self._source,
            "prompt_agents": self._prompt_agent,
            "triggers": self._trigger,
            "subscriptions": self._subscription,
            "calendars": self._calendar,
            "schedules": self._schedule,
        }
        for kind, carry_out in steps.items():
            for entry in content.get(kind, ()):
                name = entry[NAMED_BY[kind]]
                try:
                    with transaction.atomic():
                        carry_out(name, entry)
                except (ValueError, IllegalState) as error:  # Invalid and RuleError are such, too
                    self.refused.add((kind, name))
                    self.problems += [f"{kind[:-1].replace('_', ' ')} {name}: {problem}" for problem in _said(error)]

    def _source(self, slug: str, entry: Entry) -> None:
        source = Source.objects.filter(slug=slug).first()
        given = {name: entry[name] for name in ("enabled", "trusted", "settings", "limits") if name in entry}
        if source is None:
            source = create_source(slug, kind=entry.get("kind", ""), **{"settings": {}, **given}, by=self.by)
            made = {"kind": source.kind, **given}
            if "detectors" in entry:
                set_detectors(source, entry["detectors"], by=self.by)
                made["detectors"] = entry["detectors"]
            self.done.made(f"source {slug}", made)
            if kinds()[source.kind].needs_secret:
                self.done.notes.append(
                    f"source {slug} has no secret yet: create one in the console, and enter it and the address at the sender"
                )
            return
        if entry.get("kind", source.kind) != source.kind:
            raise Invalid([f"kind: the source with this slug here has kind {source.kind}; rename one of them"])
        if changed := _differences(given, source):
            change_source(source, {name: given[name] for name in changed}, by=self.by)
        if "detectors" in entry and (before := armed_on(source) or []) != entry["detectors"]:
            set_detectors(source, entry["detectors"], by=self.by)
            changed["detectors"] = (before, entry["detectors"])
        if changed:
            self.done.changed(f"source {slug}", changed)

    def _prompt_agent(self, name: str, entry: Entry) -> None:
        given = read(entry)
        agent = PromptAgent.objects.filter(name=name, deleted_at=None).first()
        if agent is None:
            create_prompt_agent(name, given.over(), checklist=given.checklist or (), budget=given.budget, by=self.by)
            self.done.made(f"prompt agent {name}", {key: value for key, value in entry.items() if key != "name"})
            return
        here = exported(agent)
        changed = {key: (here[key], value) for key, value in entry.items() if here[key] != value}
        if changed:
            edit_prompt_agent(agent.pk, given.over(Definition.load(here)), by=self.by)
            set_budget(name, given.budget, by=self.by)
            if "checklist" in changed:
                set_checklist(name, given.checklist or (), by=self.by)
            self.done.changed(f"prompt agent {name}", changed)

    def _trigger(self, slug: str, entry: Entry) -> None:
        trigger = self.triggers.get(slug)
        if entry.get("declared") and (trigger is None or trigger.declared is None):
            fix = "add its app to WAKEFUL_APPS and run `manage.py sync_agents`"
            raise Invalid([f"declared: the code here declares no such trigger; {fix}"])
        given = {name: entry[name] for name in EDITABLE if name in entry}
        if ("sources", given.get("source")) in self.refused:
            del given["source"]
        if ("prompt_agents", entry.get("agent")) in self.refused:
            self.refused.add(("triggers", slug))
            return
        if trigger is None:
            agent = entry.get("agent", "")
            self.triggers[slug] = create_trigger(slug, agent=agent, **given, by=self.by)
            self.done.made(f"trigger {slug}", {"agent": agent, **given})
        elif entry.get("agent", trigger.agent) != trigger.agent:
            raise Invalid([f"agent: the trigger with this slug here has agent {trigger.agent}; rename one of them"])
        elif changed := _differences(given, trigger):
            override(trigger, {name: given[name] for name in changed}, by=self.by)
            self.done.changed(f"trigger {slug}", changed)

    def _subscription(self, slug: str, entry: Entry) -> None:
        """Where events go is decided on each system: a URL in the file is only for a new subscription, and no export has one."""
        if not all(isinstance(glob, str) for name in ("sources", "types") for glob in entry.get(name, ())):
            raise Invalid(["types, sources: must be lists of strings, such as invoice.*"])
        subscription = Subscription.objects.filter(slug=slug).first()
        given = {name: entry[name] for name in ("enabled", "sources", "types", "filter") if name in entry}
        try:
            if subscription is not None:
                if changed := _differences(given, subscription):
                    change_subscription(subscription, {name: given[name] for name in changed}, by=self.by)
                    self.done.changed(f"subscription {slug}", changed)
            elif "url" in entry:
                create_subscription(slug, url=entry["url"], **given, by=self.by)
                self.done.made(f"subscription {slug}", given)
                self.done.notes.append(
                    f"subscription {slug} has a new secret: make another one, and enter it at the receiver"
                )
            else:
                add = 'add "url" to its entry, or create it here first'
                self.done.notes.append(f"subscription {slug} is skipped: the file does not have its URL; {add}")
        except ValidationError as refused:
            named = refused.message_dict.items()
            raise Invalid([f"{name}: {text}" for name, texts in named for text in texts]) from None

    def _calendar(self, slug: str, entry: Entry) -> None:
        calendar = ExclusionCalendar.objects.filter(slug=slug).first()
        if calendar is None:
            days = entry.get("days", "")
            create_calendar(slug=slug, days=days, by=self.by)
            self.done.made(f"calendar {slug}", {"days": days})
        elif changed := _differences({"days": entry.get("days", calendar.days)}, calendar):
            change_calendar(calendar, days=entry["days"], by=self.by)
            self.done.changed(f"calendar {slug}", changed)

    def _schedule(self, name: str, entry: Entry) -> None:
        schedule = Schedule.objects.select_related(*RELATED).filter(task__name=name).first()
        its_trigger = schedule.trigger.slug if schedule and schedule.trigger else ""
        slug = entry.get("trigger", its_trigger)
        if schedule and (not slug or slug != its_trigger):
            raise RuleError("name: another schedule or periodic task has this name here; rename one of them")
        if entry.get("declared") and (schedule is None or not is_declared(schedule)):
            raise RuleError("declared: the code here declares no such schedule; run `manage.py sync_agents`")
        rule, policy = rule_in(entry, schedule), policy_in(entry, schedule)
        if ("triggers", slug) in self.refused:
            return
        if slug not in self.triggers:
            raise RuleError(f"trigger: no trigger {slug!r} exists here or in the file")
        policy = replace(policy, exclude=tuple(one for one in policy.exclude if ("calendars", one) not in self.refused))
        before = rule_here(schedule) if schedule else None
        if rule and is_past(rule):
            if rule != before:
                self.done.notes.append(f"schedule {name} is skipped: {rule.words} is past")
        elif schedule:
            self._edit_schedule(schedule, entry, None if rule == before else rule, policy)
        elif rule:
            self._create_schedule(self.triggers[slug], entry, rule, policy)

    def _create_schedule(self, trigger: Trigger, entry: Entry, rule: Rule, policy: SchedulePolicy) -> None:
        schedule = create_schedule(name=entry["name"], trigger=trigger, rule=rule, policy=policy, by=self.by)
        is_on = entry.get("enabled", True)
        if not is_on:
            pause_schedule(schedule, by=self.by)
        chosen = {name: policy.dump()[name] for name in policy.changes_from(DEFAULT)}
        made = {"trigger": trigger.slug, **rule_as_json(rule), **chosen, "enabled": is_on}
        self.done.made(f"schedule {entry['name']}", made)

    def _edit_schedule(self, schedule: Schedule, entry: Entry, rule: Rule | None, policy: SchedulePolicy) -> None:
        now, before = SchedulePolicy.of(schedule), rule_here(schedule)
        changed = {name: (now.dump()[name], policy.dump()[name]) for name in policy.changes_from(now)}
        if rule:
            changed["rule"] = (before and rule_as_json(before), rule_as_json(rule))
        if changed:
            edit_schedule(schedule, rule=rule, policy=policy, by=self.by)
        is_on = schedule.task.enabled
        if entry.get("enabled", is_on) != is_on and self._switch(schedule, on=not is_on):
            changed["enabled"] = (is_on, not is_on)
        if changed:
            self.done.changed(f"schedule {entry['name']}", changed)

    def _switch(self, schedule: Schedule, *, on: bool) -> bool:
        try:
            (resume_schedule if on else pause_schedule)(schedule, by=self.by)
        except IllegalState as refusal:
            self.done.notes.append(f"schedule {schedule.task.name} is unchanged: {refusal}")
            return False
        return True


def policy_in(entry: Entry, schedule: Schedule | None) -> SchedulePolicy:
    """The policy in the file; fields that it does not name are those of the schedule here."""
    given = {name: entry[name] for name in NAMES if name in entry}
    return SchedulePolicy.parse(given, SchedulePolicy.of(schedule) if schedule else None)


def rule_in(entry: Entry, schedule: Schedule | None) -> Rule | None:
    """The rule in the file; None: an existing schedule keeps its rule."""
    given = {name: entry[name] for name in RULE if name in entry}
    return parse_rule(**given) if given or schedule is None else None


def _differences(given: Entry, here: Model) -> Differences:
    return {name: (getattr(here, name), value) for name, value in given.items() if getattr(here, name) != value}


def _said(error: ValueError | IllegalState) -> Sequence[str]:
    if isinstance(error, Invalid):
        return error.problems
    if not isinstance(error, RuleError):
        return [str(error)]
    is_named = not error.field or error.field == "when" or str(error).startswith(error.field)
    return [str(error) if is_named else f"{error.field}: {error}"]
