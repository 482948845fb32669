"""Check a transfer file as a whole before anything of it is carried out."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from django.utils.text import slugify

from agents import registry
from triggers.dispatch.expressions import ExpressionError, compile_expression
from triggers.dispatch.trigger_policy import check_policy
from triggers.exceptions import RuleError
from triggers.models import ExclusionCalendar, Schedule, Source, Trigger
from triggers.schedules.edit import (
    is_declared,
)
from triggers.schedules.rules.as_json import parse_rule
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


class Here:
    """What there is."""

    def __init__(self) -> None:
        self.sources = {source.slug: source for source in Source.objects.all()}
        self.triggers = {trigger.slug: trigger for trigger in Trigger.objects.select_for_update(no_key=True)}
        self.schedules = {one.task.name: one for one in Schedule.objects.select_related(*RELATED)}
        self.calendars = {calendar.slug: calendar for calendar in ExclusionCalendar.objects.all()}
        self.agents = {agent.name for agent in registry.all_agents()}


def problems_of(content: Any, here: Here) -> Iterator[str]:
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
        policy = policy_in(entry, known)
        if missing := sorted(set(policy.exclude) - calendars):
            yield f"exclude: there is no calendar {missing[0]!r}, here or in the file"
    except RuleError as error:
        yield str(error)
    try:
        rule_in(entry)
    except (RuleError, ValueError) as error:
        yield str(error)


def policy_in(entry: Entry, known: Schedule | None) -> SchedulePolicy:
    """What the file names, and the rest as it is here."""
    given = {name: entry[name] for name in NAMES if name in entry}
    return SchedulePolicy.parse(given, SchedulePolicy.of(known) if known else None)


def rule_in(entry: Entry) -> Rule | None:
    given = {name: entry[name] for name in RULE if name in entry}
    return parse_rule(**given) if given else None
