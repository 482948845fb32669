"""The triggers that the code declares, validated."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.utils.text import slugify

from agents import registry
from agents.agent import Agent
from agents.exceptions import DeclarationError
from agents.on import (
    ClockedTrigger,
    CronTrigger,
    IntervalTrigger,
    ScheduleTrigger,
    SourceTrigger,
    TriggerDeclaration,
    WordsTrigger,
)
from runs.models.policy import REPORTS
from triggers.declarations.sources import WantedSource, wanted_source
from triggers.exceptions import RuleError
from triggers.matching.expressions.cel import ExpressionError, check_condition, check_expression
from triggers.matching.trigger_policy import check_policy, policy_of
from triggers.models import Trigger
from triggers.schedules.preview import DEFAULT
from triggers.schedules.rules import as_json
from triggers.schedules.rules.as_json import rule_as_json
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval
from triggers.schedules.rules.once import Clocked
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import SchedulePolicy


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A trigger as the code declares it."""

    slug: str
    columns: Mapping[str, Any]
    rule: Rule | None = None
    policy: SchedulePolicy = DEFAULT
    words: Sequence[str] = ()  # the text of the rule and its zone
    source: WantedSource | None = None  # the one that it declares as well

    @property
    def declared(self) -> dict[str, Any]:
        if self.rule is None:
            return dict(self.columns)
        words = {"words": list(self.words)} if self.words else {}
        return {**self.columns, "rule": rule_as_json(self.rule), **words, **self.policy.dump()}

    def as_first_seen(self, trigger: Trigger | None) -> "Wanted":
        """A relative time, such as "in 20 minutes", counts from the first sync of its declaration."""
        declared = (trigger and trigger.declared) or {}
        if not isinstance(self.rule, Clocked) or not self.words or declared.get("words") != list(self.words):
            return self
        return replace(self, rule=as_json.parse_rule(**declared["rule"]))


def wanted_triggers() -> list[Wanted]:
    """The triggers that all registered agents declare. DeclarationError lists all errors, each with agent and fix."""
    wanted: list[Wanted] = []
    problems: list[str] = []
    for agent in registry.agents_in_code():
        for number, declaration in enumerate(agent.triggers, start=1):
            try:
                wanted.append(_wanted(agent, declaration, number))
            except (RuleError, ExpressionError, DeclarationError) as error:
                problems.append(f"agent {agent.name!r}: {error}")
    for slug, count in Counter(each.slug for each in wanted).items():
        if count > 1:
            names = sorted({each.columns["agent"] for each in wanted if each.slug == slug})
            problems.append(
                f"{count} triggers have the slug {slug!r} of {', '.join(names)}; give one of them another slug="
            )
    if problems:
        raise DeclarationError("\n".join(problems))
    return wanted


def _wanted(agent: Agent, declaration: TriggerDeclaration, number: int) -> Wanted:
    slug = _slug(agent, declaration, number)
    for expression in agent.input.values():
        check_expression(expression)
    columns: dict[str, Any] = {
        "agent": agent.name,
        "source": "",
        "types": [],
        "filter": "",
        "input": dict(agent.input),
        "key": "",  # a schedule's ticks have one key: the trigger
        "key_limit": agent.key_limit,
        "overlap": agent.overlap or "skip",
        "policy": policy_of(agent),
        "tools": None if agent.tools is None else sorted(agent.tools),
    }
    if declaration.reports is not None:
        columns["policy"] |= {REPORTS: [report.dump() for report in declaration.reports]}
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
        raise DeclarationError('on.event() needs a type, e.g. on.event("invoice.paid") or on.event("*")')
    for expression in filter(None, (declaration.filter, agent.key)):
        check_condition(expression)
    source = None
    if isinstance(declaration, SourceTrigger):
        source = wanted_source(slug, declaration)
        columns["policy"] = {**columns["policy"], **declaration.policy}
    columns |= {
        "source": source.slug if source else declaration.source,
        "types": list(declaration.types),
        "filter": declaration.filter,
        "key": agent.key,
        "overlap": agent.overlap or ("queue" if agent.key or agent.key_limit > 1 or agent.gate else "allow"),
    }
    return Wanted(slug=slug, columns=columns, source=source)


def _slug(agent: Agent, declaration: TriggerDeclaration, number: int) -> str:
    if declaration.slug:
        slug = declaration.slug
        if slug != slugify(slug):
            raise DeclarationError(f"{slug!r} is not a valid slug; use {slugify(slug)!r}")
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
