"""A file of `triggers.transfer.export` brought into this system: looked at whole first, then carried out whole or not at all.

What the file says is made so; what it does not name stays as it is, and nothing is deleted. What it changes of a trigger
that the code declares is the operator's from then on, as by an edit in the admin.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import connection, transaction
from django.utils.text import slugify

from agents import registry
from agents.guards.atomic import not_in_atomic_body
from runs.audit import record
from runs.exceptions import IllegalState
from triggers.declarations.sync import COLUMNS, LOCK, override, rule_as_json
from triggers.dispatch.expressions import ExpressionError, compile_expression
from triggers.dispatch.trigger_policy import check_policy
from triggers.exceptions import RuleError
from triggers.models import ExclusionCalendar, Schedule, Source, Trigger
from triggers.schedules.calendars import change_calendar, create_calendar
from triggers.schedules.edit import (
    create_schedule,
    edit_schedule,
    is_declared,
    parse_rule,
    pause_schedule,
    resume_schedule,
    rule_here,
)
from triggers.schedules.preview import DEFAULT, is_past
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.excluded_days import ExcludedDays
from triggers.schedules.terms.policy import NAMES, SchedulePolicy
from triggers.sources.webhooks.scheme import schemes
from triggers.sources.webhooks.settings import InvalidSettings
from triggers.transfer.export import FORMAT, RELATED, VERSION

RULE = ("cron", "tz", "every", "at", "solar", "latitude", "longitude")
FIELDS: dict[str, dict[str, Any]] = {
    "sources": {"slug": str, "kind": str, "enabled": bool, "settings": dict},
    "triggers": {
        "slug": str, "agent": str, "declared": bool, "enabled": bool, "source": str, "types": list, "filter": str,
        "input": dict, "key": str, "key_limit": int, "overlap": str, "policy": dict,
    },
    "calendars": {"slug": str, "days": str},
    "schedules": {
        "name": str, "trigger": str, "declared": bool, "enabled": bool, "cron": str, "tz": str, "every": (int, float),
        "at": str, "solar": str, "latitude": (int, float), "longitude": (int, float), **dict.fromkeys(NAMES, object),
    },
}  # fmt: skip
NAMED_BY = {"sources": "slug", "triggers": "slug", "calendars": "slug", "schedules": "name"}
Entry = Mapping[str, Any]


class ImportRefused(ValueError):
    """The file cannot be carried out here; `problems` names each entry, its field and what to do."""

    def __init__(self, problems: list[str]) -> None:
        self.problems = problems
        super().__init__("\n".join(problems))


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
        if problems := list(_problems(content, here)):
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


class Here:
    """What there is."""

    def __init__(self) -> None:
        self.sources = {source.slug: source for source in Source.objects.all()}
        self.triggers = {trigger.slug: trigger for trigger in Trigger.objects.select_for_update(no_key=True)}
        self.schedules = {one.task.name: one for one in Schedule.objects.select_related(*RELATED)}
        self.calendars = {calendar.slug: calendar for calendar in ExclusionCalendar.objects.all()}
        self.agents = {agent.name for agent in registry.all_agents()}


# Looking at it whole


def _problems(content: Any, here: Here) -> Iterator[str]:
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        yield f'this is no file of triggers: it has no "format": "{FORMAT}"'
        return
    if content.get("version") != VERSION:
        yield f"version: it is {content.get('version')!r}, and this Wakeful reads {VERSION}; use the one that wrote it"
        return
    if unknown := sorted(set(content) - {"format", "version", *FIELDS}):
        yield f"{', '.join(unknown)}: unknown here; known are {', '.join(FIELDS)}"
    shapes = [*_shapes(content)]
    yield from shapes
    if not shapes:
        sources = {*here.sources, *(entry["slug"] for entry in content.get("sources", ()))}
        triggers = {*here.triggers, *(entry["slug"] for entry in content.get("triggers", ()))}
        for entry in content.get("sources", ()):
            yield from _named("source", entry["slug"], _source_problems(entry, here))
        for entry in content.get("triggers", ()):
            yield from _named("trigger", entry["slug"], _trigger_problems(entry, here, sources))
        calendars = {*here.calendars, *(entry["slug"] for entry in content.get("calendars", ()))}
        for entry in content.get("calendars", ()):
            yield from _named("calendar", entry["slug"], _calendar_problems(entry, here))
        for entry in content.get("schedules", ()):
            yield from _named("schedule", entry["name"], _schedule_problems(entry, here, triggers, calendars))


def _shapes(content: Entry) -> Iterator[str]:
    for kind, fields in FIELDS.items():
        entries = content.get(kind, [])
        if not isinstance(entries, list):
            yield f"{kind}: must be a list"
            continue
        for number, entry in enumerate(entries):
            yield from _shape(f"{kind}[{number}]", entry, fields, required=NAMED_BY[kind])
        names = Counter(entry.get(NAMED_BY[kind]) for entry in entries if isinstance(entry, dict))
        yield from (f"{kind}: {name} is there {count} times; keep one" for name, count in names.items() if count > 1)


def _shape(where: str, entry: Any, fields: Mapping[str, Any], required: str) -> Iterator[str]:
    if not isinstance(entry, dict):
        yield f"{where}: must be an object"
        return
    if not entry.get(required):
        yield f"{where}.{required}: is missing"
    for name, value in entry.items():
        if name not in fields:
            yield f"{where}.{name}: unknown; known are {', '.join(fields)}"
        elif not isinstance(value, fields[name]) or (isinstance(value, bool) and fields[name] not in (bool, object)):
            yield f"{where}.{name}: is {value!r}, which is of another type"


def _named(kind: str, name: str, problems: Iterator[str]) -> Iterator[str]:
    return (f"{kind} {name}: {problem}" for problem in problems)


def _source_problems(entry: Entry, here: Here) -> Iterator[str]:
    known = here.sources.get(entry["slug"])
    kind = entry.get("kind", known.kind if known else "")
    if kind not in schemes():
        yield f"kind: is {kind!r}; known are {', '.join(schemes())}"
        return
    if known and known.kind != kind:
        yield f"kind: a source of this name is here, of kind {known.kind}; rename one of them"
        return
    if not known:
        yield from _slug_problems(entry["slug"])
    try:
        schemes()[kind].clean_settings(entry.get("settings", known.settings if known else {}))
    except InvalidSettings as error:
        yield from (f"settings.{name}: {problem}" for name, problem in error.errors.items())


def _slug_problems(slug: str) -> Iterator[str]:
    if slug != slugify(slug) or len(slug) > 100:
        yield f"slug: must be lower case letters, digits and hyphens, 100 at most, such as {slugify(slug)[:100]!r}"


def _trigger_problems(entry: Entry, here: Here, sources: set[str]) -> Iterator[str]:
    known = here.triggers.get(entry["slug"])
    is_from_code = entry.get("declared", False)
    if is_from_code and (known is None or known.declared is None):
        yield (
            "declared: the code here declares no such trigger; name its app in WAKEFUL_APPS and say `manage.py sync_agents`"
        )
        return
    if known is None:
        yield from _slug_problems(entry["slug"])
        if "agent" not in entry:
            yield "agent: is missing"
    agent = entry.get("agent", known.agent if known else None)
    if known and agent != known.agent:
        yield f"agent: a trigger of this name is here, of agent {known.agent}; rename one of them"
    elif agent is not None and agent not in here.agents:
        yield f"agent: there is no agent {agent!r} here; name its app in WAKEFUL_APPS"
    if entry.get("source") and entry["source"] not in sources:
        yield f"source: there is no source {entry['source']!r}, here or in the file; make it first, or clear it"
    if not all(isinstance(type_, str) and type_ for type_ in entry.get("types", ())):
        yield "types: must be texts, such as invoice.*"
    yield from _expression_problems(entry)
    try:
        check_policy(
            entry.get("policy", known.policy if known else {}),
            overlap=entry.get("overlap", known.overlap if known else Trigger.Overlap.ALLOW),
            key_limit=entry.get("key_limit", known.key_limit if known else 1),
        )
    except ValueError as error:
        yield str(error)


def _expression_problems(entry: Entry) -> Iterator[str]:
    expressions = {name: entry[name] for name in ("filter", "key") if entry.get(name)}
    expressions |= {f"input.{name}": text for name, text in entry.get("input", {}).items()}
    for name, text in expressions.items():
        if not isinstance(text, str):
            yield f"{name}: must be a CEL expression"
            continue
        try:
            compile_expression(text)
        except ExpressionError as error:
            yield f"{name}: {error}"


def _calendar_problems(entry: Entry, here: Here) -> Iterator[str]:
    if entry["slug"] not in here.calendars:
        yield from _slug_problems(entry["slug"])
    try:
        ExcludedDays.parse(entry.get("days", ""))
    except RuleError as error:
        yield f"days: {error}"


def _schedule_problems(entry: Entry, here: Here, triggers: set[str], calendars: set[str]) -> Iterator[str]:
    known = here.schedules.get(entry["name"])
    slug = entry.get("trigger", known.trigger.slug if known and known.trigger else "")
    if slug not in triggers:
        yield f"trigger: there is no trigger {slug!r}, here or in the file"
    if known and (known.trigger is None or known.trigger.slug != slug):
        yield "name: another schedule or periodic task of this name is here; rename one of them"
    if entry.get("declared") and (known is None or not is_declared(known)):
        yield "declared: the code here declares no such schedule; say `manage.py sync_agents`"
    elif known is None and not set(RULE) & set(entry):
        yield "give exactly one of cron, every, at and solar"
    if len(entry["name"]) > 200:
        yield "name: has more than 200 characters"
    try:
        policy = _policy(entry, known)
        if missing := sorted(set(policy.exclude) - calendars):
            yield f"exclude: there is no calendar {missing[0]!r}, here or in the file"
    except RuleError as error:
        yield str(error)
    try:
        _rule(entry)
    except (RuleError, ValueError) as error:
        yield str(error)


def _policy(entry: Entry, known: Schedule | None) -> SchedulePolicy:
    """What the file names, and the rest as it is here."""
    given = {name: entry[name] for name in NAMES if name in entry}
    return SchedulePolicy.parse(given, SchedulePolicy.of(known) if known else None)


def _rule(entry: Entry) -> Rule | None:
    given = {name: entry[name] for name in RULE if name in entry}
    return parse_rule(**given) if given else None


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
    name, rule = entry["name"], _rule(entry)
    schedule = here.schedules.get(name)
    before = rule_here(schedule) if schedule else None
    if rule and is_past(rule):
        if rule != before:
            done.notes.append(f"schedule {name} is left out: {rule.words} is past")
        return
    policy = _policy(entry, schedule)
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
