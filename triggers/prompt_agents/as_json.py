"""A prompt agent in a file or in the API: its definition field by field, its checklist, its caps, and when it wakes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from decimal import Decimal
from typing import Any

from agents.budget import MEASURES, PERIODS
from agents.budget import Budget as Caps
from agents.exceptions import DeclarationError
from agents.kernel.durations import parse_duration
from agents.kernel.report import read_reports
from agents.models import Checklist, PromptAgent
from agents.prompt_agents.definition import Definition
from runs.actions.checklists import ItemEdit
from runs.models import Budget
from runs.models.policy import REPORTS
from triggers.exceptions import Invalid, RuleError
from triggers.prompt_agents.deadlines import switch_of_arguments
from triggers.prompt_agents.edit import newest_of
from triggers.prompt_agents.wakes import OnAbsence, OnEvents, OnSchedule, When, read_wake
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import SchedulePolicy

DEFINITION = tuple(one.name for one in fields(Definition) if one.name != "acts_for")  # who saves it decides that
CAPS = tuple(f"{period}_{measure}" for period in PERIODS for measure in MEASURES)
ON_SCHEDULE = {"schedule", "tz", "policy", REPORTS}
ON_EVENTS = {"events", "source", "filter", REPORTS}
ON_ABSENCE = {
    "absence", "within", "by", "since", "days", "tz", "key", "keys", "of", "of_key", "source", "of_source", "filter", "of_filter",
    "grace", "active_hours", "most_keys", REPORTS,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Given:
    """A prompt agent as given in a file. None: the file does not set the field."""

    definition: Mapping[str, Any]
    checklist: Sequence[ItemEdit] | None = None
    budget: Caps | None = None
    when: Sequence[When] = field(default=())

    def over(self, base: Definition | None = None) -> Definition:
        """The definition, with what is not named as in `base`. Invalid: it names no instructions and there are none."""
        known = base.dump() if base else {"instructions": ""}
        return Definition.load({**known, **self.definition})


def read(entry: Mapping[str, Any]) -> Given:
    """Read all but its name. Invalid names each wrong field."""
    problems: list[str] = []
    if unknown := sorted(set(entry) - {"name", "checklist", "budget", "when", *DEFINITION}):
        known = ", ".join(("name", *DEFINITION, "checklist", "budget", "when"))
        problems.append(f"{', '.join(unknown)}: unknown; use {known}")
    definition = {name: entry[name] for name in DEFINITION if name in entry}
    checklist, budget, when = None, None, []
    try:
        checklist = _items(entry["checklist"]) if "checklist" in entry else None
    except (TypeError, ValueError, AttributeError) as error:
        problems.append(f"checklist: {error}")
    try:
        budget = Caps(**entry["budget"]) if entry.get("budget") else None
    except (DeclarationError, TypeError) as error:
        problems.append(f"budget: {error}")
    try:
        when = [_when(one) for one in _listed(entry.get("when", []))]
    except (RuleError, TypeError, ValueError) as error:
        problems.append(f"when: {error}")
    if problems:
        raise Invalid(problems)
    return Given(definition=definition, checklist=checklist, budget=budget, when=when)


def exported(agent: PromptAgent) -> dict[str, Any]:
    """A prompt agent as JSON without its triggers, which have their own entries in a file."""
    checklist = Checklist.objects.filter(agent=agent.name, trigger="").prefetch_related("items").first()
    definition = Definition.load(newest_of(agent).definition).dump()
    return {
        "name": agent.name,
        **{name: definition[name] for name in DEFINITION},
        "checklist": list(_written(checklist)) if checklist else [],
        "budget": caps_of(agent.name),
    }


def caps_of(name: str) -> dict[str, str]:
    rows = Budget.objects.filter(scope="agent", name=name, cap__isnull=False)
    return {f"{row.period}_{row.measure}": f"{(row.cap or Decimal()).normalize():f}" for row in rows}


def _written(checklist: Checklist) -> Iterator[Any]:
    for item in checklist.items.all():
        more = {"every": item.every.total_seconds()} if item.every else {}
        more |= {"paused": True} if item.paused_at else {}
        yield {"text": item.text, **more} if more else item.text


def _items(given: Any) -> list[ItemEdit]:
    return [_item(one) for one in _listed(given)]


def _item(given: Any) -> ItemEdit:
    if isinstance(given, str):
        return ItemEdit(text=given)
    if (
        not isinstance(given, Mapping)
        or set(given) - {"text", "every", "paused"}
        or not isinstance(given.get("text"), str)
    ):
        raise ValueError(f'an item is a text, or {{"text": …, "every": "6h", "paused": false}}, not {given!r}')
    every = given.get("every")
    return ItemEdit(
        text=given["text"], every=None if every is None else parse_duration(every), paused=bool(given.get("paused"))
    )


def _when(given: Any) -> When:
    if isinstance(given, str):
        found, rest = read_wake(given)
        return found if isinstance(found, OnAbsence) and not rest else OnSchedule(rule=read_rule(given))
    if isinstance(given, Mapping) and "schedule" in given and not set(given) - ON_SCHEDULE:
        policy = SchedulePolicy.parse(given.get("policy", {}))
        rule = read_rule(given["schedule"], given.get("tz", "UTC"))
        return OnSchedule(rule=rule, policy=policy, reports=read_reports(given.get(REPORTS, [])))
    if isinstance(given, Mapping) and "absence" in given and not set(given) - ON_ABSENCE:
        its_own = {name: value for name, value in given.items() if name not in ("absence", REPORTS)}
        settings = switch_of_arguments({"types": _listed(given["absence"]), **its_own})
        return OnAbsence(settings=settings, reports=read_reports(given.get(REPORTS, [])))
    if isinstance(given, Mapping) and given and not set(given) - ON_EVENTS:
        return OnEvents(
            types=_listed(given.get("events", ["*"])),
            source=given.get("source", ""),
            filter=given.get("filter", ""),
            reports=read_reports(given.get(REPORTS, [])),
        )
    raise ValueError(
        'each is {"schedule": "every weekday at 08:00", "tz": "Europe/Vienna"}, or {"events": ["invoice.*"], "source": '
        f'"billing", "filter": "…"}}, or {{"absence": ["ci.passed"], "by": "15:00", "since": "12:00"}}, with {REPORTS} '
        f"if you like, not {given!r}"
    )


def _listed(given: Any) -> list[Any]:
    if not isinstance(given, list | tuple):
        raise ValueError(f"must be a list, not {given!r}")
    return list(given)
