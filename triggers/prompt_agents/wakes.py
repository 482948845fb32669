"""When a prompt agent wakes: by a schedule in words, or by events. Each is a trigger, made by the same services as any other."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from django_celery_beat.models import PeriodicTask

from triggers.declarations.overrides import create_trigger
from triggers.exceptions import RuleError
from triggers.models import Trigger
from triggers.schedules.edit import create_schedule
from triggers.schedules.preview import DEFAULT
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import SchedulePolicy

MOST_WORDS = 16  # of a rule at the beginning of a sentence
JOINTS = ",:;.–- "


@dataclass(frozen=True, kw_only=True)
class OnSchedule:
    rule: Rule
    policy: SchedulePolicy = DEFAULT


@dataclass(frozen=True, kw_only=True)
class OnEvents:
    """Events of these types (globs), of one source or any, that pass the CEL filter."""

    types: Sequence[str] = field(default=("*",))
    source: str = ""
    filter: str = ""


When = OnSchedule | OnEvents


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
    slug = _free(agent)
    if isinstance(when, OnSchedule):
        schedule = create_schedule(name=slug, agent=agent, rule=when.rule, policy=when.policy, by=by)
        assert schedule.trigger is not None  # noqa: S101  (made with it)
        return schedule.trigger
    given = {"types": list(when.types), "source": when.source, "filter": when.filter}
    return create_trigger(slug, agent=agent, **given, overlap=Trigger.Overlap.QUEUE, by=by)


def _rule(text: str, tz: str) -> Rule | None:
    for said in (text, f"{text}:00"):  # "at 8" is "at 8:00" where an agent is described in a sentence
        try:
            return read_rule(said, tz)
        except RuleError:
            continue
    return None


def _free(agent: str) -> str:
    """The name of the agent, or with a number behind it, that no trigger or schedule has."""
    number = 1
    while True:
        slug = agent if number == 1 else f"{agent[:95]}-{number}"
        if not Trigger.objects.filter(slug=slug).exists() and not PeriodicTask.objects.filter(name=slug).exists():
            return slug
        number += 1
