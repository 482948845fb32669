"""When a prompt agent wakes: by a schedule in words, by events, or by their absence. Each is a trigger, made by the same services as
any other; an absence has a switch of its own as well."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import transaction
from django_celery_beat.models import PeriodicTask

from agents.kernel.report import Report
from triggers.declarations.overrides import create_trigger, override
from triggers.exceptions import RuleError
from triggers.matching.trigger_policy import policy_with
from triggers.models import Source, Trigger
from triggers.prompt_agents.deadlines import read_deadline, switch_of_arguments
from triggers.schedules.edit import create_schedule
from triggers.schedules.preview import DEFAULT
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.edit import create_source
from triggers.sources.kind import kinds
from triggers.sources.settings import InvalidSettings
from triggers.switches.switch import ABSENCE, OPENED, deadlines_of

MOST_WORDS = 16  # of a rule at the beginning of a sentence
JOINTS = ",:;.–- "


@dataclass(frozen=True, kw_only=True)
class Wake:
    """`reports`: where the outcome of its runs goes."""

    reports: Sequence[Report] = ()


@dataclass(frozen=True, kw_only=True)
class OnSchedule(Wake):
    rule: Rule
    policy: SchedulePolicy = DEFAULT


@dataclass(frozen=True, kw_only=True)
class OnEvents(Wake):
    """Events of these types (globs), of one source or any, that pass the CEL filter."""

    types: Sequence[str] = field(default=("*",))
    source: str = ""
    filter: str = ""


@dataclass(frozen=True, kw_only=True)
class OnAbsence(Wake):
    """The absence of events, with the settings of its switch."""

    settings: Mapping[str, Any]

    @property
    def words(self) -> str:
        """Such as "ci.passed by 15:00 (UTC), since 12:00"."""
        return f"{self.settings['types']} {deadlines_of(self.settings).words}" if self.settings["by"] else ""


When = OnSchedule | OnEvents | OnAbsence


def read_wake(text: str, tz: str = "UTC") -> tuple[OnSchedule | OnAbsence | None, str]:
    """The deadline or the schedule that a sentence begins with, and the rest of it. RuleError: a deadline that makes no sense."""
    arguments, rest = read_deadline(text, tz)
    if arguments is not None:
        return OnAbsence(settings=_checked(switch_of_arguments(arguments))), rest
    rule, rest = read_sentence(text, tz)
    return (OnSchedule(rule=rule) if rule else None), rest


def read_sentence(text: str, tz: str = "UTC") -> tuple[Rule | None, str]:
    """The rule that a sentence begins with, and the rest: "every weekday at 8 look at failed runs" is "every weekday at 8" and
    "look at failed runs". None: it begins with no rule."""
    words = text.split()
    for count in range(min(len(words), MOST_WORDS), 0, -1):
        if rule := _rule(" ".join(words[:count]).rstrip(JOINTS), tz):
            rest = text.split(maxsplit=count)[count:]
            return rule, rest[0].lstrip(JOINTS).rstrip() if rest else ""
    return None, text


def add_wake(agent: str, when: When, *, by: str) -> Trigger:
    """A new trigger of the agent, named after it. RuleError or Invalid names the wrong field."""
    trigger = _add(agent, when, by)
    if when.reports:
        override(trigger, {"policy": policy_with(trigger.policy, when.reports)}, by)
    return trigger


def _add(agent: str, when: When, by: str) -> Trigger:
    slug = _free(agent)
    if isinstance(when, OnSchedule):
        schedule = create_schedule(name=slug, agent=agent, rule=when.rule, policy=when.policy, by=by)
        assert schedule.trigger is not None  # noqa: S101  (made with it)
        return schedule.trigger
    if isinstance(when, OnAbsence):
        with transaction.atomic():
            create_source(slug, kind=ABSENCE, settings=when.settings, by=by)
            return create_trigger(
                slug, agent=agent, types=[OPENED], source=slug, overlap=Trigger.Overlap.QUEUE, by=by
            )  # fmt: skip
    given = {"types": list(when.types), "source": when.source, "filter": when.filter}
    return create_trigger(slug, agent=agent, **given, overlap=Trigger.Overlap.QUEUE, by=by)


def _rule(text: str, tz: str) -> Rule | None:
    for said in (text, f"{text}:00"):  # "at 8" is "at 8:00" where an agent is described in a sentence
        try:
            return read_rule(said, tz)
        except RuleError:
            continue
    return None


def _checked(settings: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        kinds()[ABSENCE].check(settings)
    except InvalidSettings as error:
        raise RuleError("; ".join(error.errors.values())) from None
    return settings


def _free(agent: str) -> str:
    """The name of the agent, or with a number behind it, that no trigger, schedule or source has."""
    number = 1
    while True:
        slug = agent if number == 1 else f"{agent[:95]}-{number}"
        taken = (
            Trigger.objects.filter(slug=slug), PeriodicTask.objects.filter(name=slug), Source.objects.filter(slug=slug),
        )  # fmt: skip
        if not any(rows.exists() for rows in taken):
            return slug
        number += 1
