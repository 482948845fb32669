"""Agents' code declarations become Trigger rows and their schedules (`manage.py sync_agents`).

`Trigger.declared` keeps what the code said at the last sync, field by field. A row that says otherwise was changed by
somebody since, by whatever way: that field is his from then on (`Trigger.overrides`) and no deploy touches it.
Whether a trigger is enabled is the operator's alone; only a declaration that vanishes turns it off, and coming back
turns on again what it turned off.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from django.db import connection, transaction
from django.utils.text import slugify
from django_celery_beat.models import PeriodicTask

from agents import registry
from agents.agent import Agent
from agents.exceptions import DeclarationError
from agents.guards.atomic import not_in_atomic_body
from agents.on import (
    ClockedTrigger,
    CronTrigger,
    IntervalTrigger,
    ScheduleTrigger,
    TriggerDeclaration,
    WordsTrigger,
)
from runs.audit import record, record_about
from triggers.dispatch.expressions import ExpressionError, compile_expression
from triggers.dispatch.trigger_policy import check_policy, policy_of
from triggers.exceptions import RuleError
from triggers.models import Schedule, Trigger
from triggers.schedules import edit
from triggers.schedules.calendars import calendars_named
from triggers.schedules.edit import VANISHED
from triggers.schedules.preview import DEFAULT, is_past
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.sun import Solar
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import NAMES, SchedulePolicy

COLUMNS = ("agent", "source", "types", "filter", "input", "key", "key_limit", "overlap", "policy")
EDITABLE = (*COLUMNS[1:], "enabled")
LOCK = 0x5A6E  # of pg_advisory_xact_lock: one sync at a time


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A trigger as the code declares it."""

    slug: str
    columns: Mapping[str, Any]
    rule: Rule | None = None
    policy: SchedulePolicy = DEFAULT
    words: Sequence[str] = ()  # a rule's, and their zone

    @property
    def declared(self) -> dict[str, Any]:
        if self.rule is None:
            return dict(self.columns)
        words = {"words": list(self.words)} if self.words else {}
        return {**self.columns, "rule": rule_as_json(self.rule), **words, **self.policy.dump()}

    def as_first_seen(self, trigger: Trigger | None) -> "Wanted":
        """A time that words tell counts from the first sync that saw them."""
        declared = (trigger and trigger.declared) or {}
        if not isinstance(self.rule, Clocked) or not self.words or declared.get("words") != list(self.words):
            return self
        return replace(self, rule=edit.parse_rule(**declared["rule"]))


@dataclass(kw_only=True)
class Change:
    """What a sync did to a trigger."""

    slug: str
    action: str
    fields: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.action} {self.slug}" + (f" ({', '.join(self.fields)})" if self.fields else "")


# The code's side


def wanted_triggers() -> list[Wanted]:
    """Every trigger the registered agents declare; DeclarationError lists all that is wrong, with agent and fix."""
    wanted: list[Wanted] = []
    problems: list[str] = []
    for agent in registry.all_agents():
        for number, declaration in enumerate(agent.triggers, start=1):
            try:
                wanted.append(_wanted(agent, declaration, number))
            except (RuleError, ExpressionError, DeclarationError) as error:
                problems.append(f"agent {agent.name!r}: {error}")
    for slug, count in Counter(each.slug for each in wanted).items():
        if count > 1:
            names = sorted({each.columns["agent"] for each in wanted if each.slug == slug})
            problems.append(f"{count} triggers are called {slug!r} (of {', '.join(names)}); give one of them a slug=")
    if problems:
        raise DeclarationError("\n".join(problems))
    return wanted


def _wanted(agent: Agent, declaration: TriggerDeclaration, number: int) -> Wanted:
    slug = _slug(agent, declaration, number)
    for expression in agent.input.values():
        compile_expression(expression)
    columns: dict[str, Any] = {
        "agent": agent.name,
        "source": "",
        "types": [],
        "filter": "",
        "input": dict(agent.input),
        "key": "",  # of a schedule: the trigger itself, for its events carry nothing to tell apart
        "key_limit": agent.key_limit,
        "overlap": agent.overlap or "skip",
        "policy": policy_of(agent),
    }
    try:
        check_policy(columns["policy"], overlap=columns["overlap"], key_limit=agent.key_limit)
    except ValueError as error:
        raise DeclarationError(str(error)) from error
    if isinstance(declaration, ScheduleTrigger):
        policy = SchedulePolicy.parse(declaration.policy)
        if policy.kind == "heartbeat":
            columns["overlap"] = agent.overlap or Trigger.Overlap.QUEUE_ONE
        words = (declaration.words, declaration.tz) if isinstance(declaration, WordsTrigger) else ()
        return Wanted(slug=slug, columns=columns, rule=_rule(declaration), policy=policy, words=words)
    if not declaration.types or not all(declaration.types):
        raise DeclarationError('on.event() names no type; write such as on.event("invoice.paid") or on.event("*")')
    for expression in filter(None, (declaration.filter, agent.key)):
        compile_expression(expression)
    columns |= {
        "source": declaration.source,
        "types": list(declaration.types),
        "filter": declaration.filter,
        "key": agent.key,
        "overlap": agent.overlap or ("queue" if agent.key or agent.key_limit > 1 else "allow"),
    }
    return Wanted(slug=slug, columns=columns)


def _slug(agent: Agent, declaration: TriggerDeclaration, number: int) -> str:
    if declaration.slug:
        slug = declaration.slug
        if slug != slugify(slug):
            raise DeclarationError(f"slug {slug!r} is no slug; write {slugify(slug)!r}")
    else:
        slug = slugify(agent.name) + (f"-{number}" if number > 1 else "")
    if not slug or len(slug) > 100:
        raise DeclarationError(f"slug {slug!r} must have 1 to 100 characters; give the trigger a slug=")
    return slug


def _rule(declaration: ScheduleTrigger) -> Rule:
    if isinstance(declaration, CronTrigger):
        return Cron.parse(declaration.cron, declaration.tz)
    if isinstance(declaration, IntervalTrigger):
        return Interval.parse(declaration.every)
    if isinstance(declaration, ClockedTrigger):
        return Clocked.parse(declaration.at)
    assert isinstance(declaration, WordsTrigger)  # noqa: S101  (there is no other kind)
    return read_rule(declaration.words, declaration.tz)


def rule_as_json(rule: Rule) -> dict[str, Any]:
    if isinstance(rule, Cron):
        return {"cron": rule.text, "tz": str(rule.zone)}
    if isinstance(rule, Interval):
        return {"every": rule.every.total_seconds()}
    if isinstance(rule, Solar):
        return {"solar": rule.event, "latitude": rule.latitude, "longitude": rule.longitude}
    return {"at": rule.at.isoformat()}


# The database's side


@not_in_atomic_body
def sync(by: str = "sync_agents") -> list[Change]:
    """Make the rows say what the code declares; what changed. Raises DeclarationError before anything is written."""
    wanted = wanted_triggers()
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(%s::bigint)", [LOCK])
        known = {trigger.slug: trigger for trigger in Trigger.objects.select_for_update(no_key=True)}
        wanted = [each.as_first_seen(known.get(each.slug)) for each in wanted]
        _refuse_taken(wanted, known)
        changes = [_sync_one(each, known.get(each.slug)) for each in wanted]
        slugs = {each.slug for each in wanted}
        changes += [
            _vanish(trigger)
            for trigger in known.values()
            if trigger.declared is not None and trigger.slug not in slugs and VANISHED not in trigger.declared
        ]
        changed = [change for change in changes if change]
        _record(changed, by)
    return changed


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
            problems.append(f"an operator made a trigger {each.slug!r}; delete it, or give the declared one a slug=")
        elif each.rule and tasks.exists():
            problems.append(f"there is another schedule {each.slug!r}; rename it, or give the declared one a slug=")
        try:
            calendars_named(each.policy.exclude)
        except RuleError as error:
            problems.append(f"schedule {each.slug!r}: {error}; make it first, under Exclusion calendars or by the API")
    if problems:
        raise DeclarationError("\n".join(problems))


def _sync_one(wanted: Wanted, trigger: Trigger | None) -> Change | None:
    if trigger is None:
        return _create(wanted)
    schedule = _declared_schedule(trigger)
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
    edit.add_schedule(trigger, name=trigger.slug, rule=rule, policy=policy)
    return _in_words(rule)


def _in_words(rule: Rule) -> str:
    return f"{rule.words}: past, so it will not fire" if is_past(rule) else rule.words


def _adopt_edits(trigger: Trigger, schedule: Schedule | None) -> None:
    """Whatever differs from what the last sync wrote is the operator's."""
    row = {name: getattr(trigger, name) for name in COLUMNS}
    if schedule:
        row |= {"rule": _row_rule(schedule), **SchedulePolicy.of(schedule).dump()}
    declared = trigger.declared or {}
    edited = {name for name, value in row.items() if name in declared and declared[name] != value}
    trigger.overrides = sorted({*trigger.overrides, *edited})


def _row_rule(schedule: Schedule) -> Any:
    try:
        return rule_as_json(rule_of(schedule.task))
    except RuleError as error:
        return str(error)


def _update(wanted: Wanted, trigger: Trigger, schedule: Schedule | None) -> Iterator[str]:
    """Bring the row in line with the code where no operator has; yields the names of what that changed."""
    for name, value in wanted.columns.items():
        if name not in trigger.overrides and getattr(trigger, name) != value:
            setattr(trigger, name, value)
            yield name
    yield from _update_schedule(wanted, trigger, schedule)


def _update_schedule(wanted: Wanted, trigger: Trigger, schedule: Schedule | None) -> Iterator[str]:
    if wanted.rule is None:
        if schedule:
            edit.remove(schedule)
            yield "no schedule any more"
    elif schedule is None:
        yield _add_schedule(trigger, wanted.rule, wanted.policy)
    else:
        if "rule" not in trigger.overrides and _row_rule(schedule) != rule_as_json(wanted.rule):
            edit.set_rule(schedule, wanted.rule)
            yield _in_words(wanted.rule)
        now = SchedulePolicy.of(schedule)
        changed = [name for name in wanted.policy.changes_from(now) if name not in trigger.overrides]
        if changed:
            replace(now, **{name: getattr(wanted.policy, name) for name in changed}).apply(schedule)
            yield from changed


def _vanish(trigger: Trigger) -> Change:
    schedule = _declared_schedule(trigger)
    was_on = {"trigger": trigger.enabled, "schedule": schedule is not None and schedule.task.enabled}
    trigger.declared = {**(trigger.declared or {}), VANISHED: was_on}
    trigger.enabled = False
    trigger.save()
    if schedule and was_on["schedule"]:
        edit.set_enabled(schedule, False)
    return Change(slug=trigger.slug, action="disabled", fields=["its declaration is gone"])


def _come_back(trigger: Trigger, was_on: Mapping[str, bool]) -> None:
    trigger.enabled = was_on["trigger"]
    schedule = _declared_schedule(trigger)
    if schedule and was_on["schedule"]:
        edit.set_enabled(schedule, True)


def _declared_schedule(trigger: Trigger) -> Schedule | None:
    """The one that the code declares; an operator may have added others, and runs of the trigger theirs."""
    if "rule" not in (trigger.declared or {}):
        return None
    others = trigger.schedules.exclude(task__name__startswith=f"{trigger.slug}/")
    return others.select_related("task__crontab", "task__interval", "task__clocked").order_by("id").first()


# The operator's side


@not_in_atomic_body
def override(trigger: Trigger, changes: Mapping[str, Any], by: str) -> Trigger:
    """Change fields of a trigger; a deploy will keep these. ValueError names what makes no sense."""
    if unknown := set(changes) - set(EDITABLE):
        raise ValueError(f"{', '.join(sorted(unknown))} cannot be changed here")
    for expression in (changes.get("filter"), changes.get("key"), *(changes.get("input") or {}).values()):
        if expression:
            compile_expression(expression)
    check_policy(
        changes.get("policy", trigger.policy),
        overlap=changes.get("overlap", trigger.overlap),
        key_limit=changes.get("key_limit", trigger.key_limit),
    )
    with transaction.atomic():
        for name, value in changes.items():
            setattr(trigger, name, value)
        if trigger.declared is not None:
            trigger.overrides = sorted({*trigger.overrides, *changes} - {"enabled"})
        trigger.save(update_fields=[*changes, "overrides"])
        record(by, "override", trigger, **changes)
    return trigger


@not_in_atomic_body
def reset_overrides(trigger: Trigger, fields: Sequence[str], by: str) -> Trigger:
    """Give fields back to the code: they say again what it declared at the last sync."""
    declared = trigger.declared or {}
    given_back = [name for name in fields if name in trigger.overrides]
    with transaction.atomic():
        for name in given_back:
            if name in COLUMNS:
                setattr(trigger, name, declared[name])
        if schedule := _declared_schedule(trigger):
            _reset_schedule(schedule, {name: declared[name] for name in given_back if name in declared})
        trigger.overrides = [name for name in trigger.overrides if name not in given_back]
        trigger.save()
        record(by, "reset_overrides", trigger, fields=given_back)
    return trigger


def _reset_schedule(schedule: Schedule, declared: Mapping[str, Any]) -> None:
    if "rule" in declared:
        edit.set_rule(schedule, edit.parse_rule(**declared["rule"]))
    if policy := {name: value for name, value in declared.items() if name in NAMES}:
        SchedulePolicy.of(schedule).changed(policy).apply(schedule)
