"""Create and change triggers. A changed field of a declared trigger is owned by the operator until it is reset."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from agents import registry
from agents.guards.atomic import not_in_atomic_body
from agents.prompt_agents import catalog
from runs.models.audit import changes as what_changed
from runs.models.audit import record
from triggers.declarations.sync import COLUMNS, declared_schedule
from triggers.django_tasks.terms import problem_of
from triggers.exceptions import Invalid
from triggers.matching.expressions.cel import ExpressionError, check_condition, check_expression
from triggers.matching.trigger_policy import check_policy
from triggers.models import Schedule, Source, Trigger
from triggers.models.slug import slug_problems
from triggers.schedules import rows
from triggers.schedules.rules import as_json
from triggers.schedules.terms.policy import NAMES, SchedulePolicy

EDITABLE = (*COLUMNS[1:], "enabled")


@not_in_atomic_body
def create_trigger(slug: str, *, agent: str, by: str, **fields: Any) -> Trigger:
    """Create a trigger that no code declares. Invalid names each wrong field."""
    trigger = Trigger(slug=slug, agent=agent, **fields)
    problems = [*slug_problems(slug)]
    catalog.refresh(at_once=True)
    if not agent:
        problems.append("agent: is missing; name the agent to wake")
    elif agent not in {known.name for known in registry.all_agents()}:
        problems.append(f"agent: no agent {agent!r} is installed; add its app to WAKEFUL_APPS")
    _check(trigger, fields, problems)
    with transaction.atomic():
        trigger.save(force_insert=True)
        record(by, "create", trigger, slug=slug, agent=agent, **fields)
    return trigger


@not_in_atomic_body
def override(trigger: Trigger, changes: Mapping[str, Any], by: str) -> Trigger:
    """Change fields of a trigger; deploys keep them. Invalid names each wrong field."""
    _check(
        trigger,
        changes,
        [f"{name}: cannot be changed; use {', '.join(EDITABLE)}" for name in sorted(set(changes) - set(EDITABLE))],
    )
    before = {name: getattr(trigger, name) for name in changes}
    with transaction.atomic():
        for name, value in changes.items():
            setattr(trigger, name, value)
        if trigger.declared is not None:
            trigger.overrides = sorted({*trigger.overrides, *changes} - {"enabled"})
        trigger.save(update_fields=[*changes, "overrides"])
        record(by, "override", trigger, **what_changed(before, changes))
    return trigger


def _check(trigger: Trigger, changes: Mapping[str, Any], problems: list[str]) -> None:
    source = changes.get("source")
    if source and not Source.objects.filter(slug=source).exists():
        problems.append(f"source: no source {source!r} exists; create it first, or clear the field")
    if not all(isinstance(glob, str) and glob for glob in changes.get("types", ())):
        problems.append("types: must be a list of strings, such as invoice.*")
    tools = changes.get("tools")
    if tools is not None and not (isinstance(tools, list) and all(isinstance(tool, str) and tool for tool in tools)):
        problems.append("tools: must be a list of names, or null for all that the agent has")
    expressions = {name: changes[name] for name in ("filter", "key") if changes.get(name)}
    expressions |= {f"input.{name}": text for name, text in changes.get("input", {}).items()}
    for name, text in expressions.items():
        if not isinstance(text, str):
            problems.append(f"{name}: must be a string with a CEL expression")
            continue
        try:
            (check_condition if name in ("filter", "key") else check_expression)(text)
        except ExpressionError as error:
            problems.append(f"{name}: {error}")
    try:
        check_policy(
            changes.get("policy", trigger.policy),
            overlap=changes.get("overlap", trigger.overlap),
            key_limit=changes.get("key_limit", trigger.key_limit),
        )
    except ValueError as error:
        problems.append(str(error))
    if joins := problem_of(
        trigger.agent, changes.get("policy", trigger.policy), changes.get("overlap", trigger.overlap)
    ):
        problems.append(joins)
    if problems:
        raise Invalid(problems)


@not_in_atomic_body
def reset_overrides(trigger: Trigger, fields: Sequence[str], by: str) -> Trigger:
    """Reset fields to the code's declaration of the last sync. Invalid if no code declares the trigger."""
    declared = trigger.declared
    if declared is None:
        raise Invalid(["declared: no code declares this trigger, so there is no declaration to reset its fields to"])
    given_back = [name for name in fields if name in trigger.overrides]
    columns = [name for name in given_back if name in COLUMNS]
    before = {name: getattr(trigger, name) for name in columns}
    with transaction.atomic():
        for name in columns:
            setattr(trigger, name, declared[name])
        if schedule := declared_schedule(trigger):
            _reset_schedule(schedule, {name: declared[name] for name in given_back if name in declared})
        trigger.overrides = [name for name in trigger.overrides if name not in given_back]
        trigger.save()
        after = {name: declared[name] for name in columns}
        record(by, "reset_overrides", trigger, fields=given_back, **what_changed(before, after))
    return trigger


def _reset_schedule(schedule: Schedule, declared: Mapping[str, Any]) -> None:
    if "rule" in declared:
        rows.set_rule(schedule, as_json.parse_rule(**declared["rule"]))
    if policy := {name: value for name, value in declared.items() if name in NAMES}:
        SchedulePolicy.of(schedule).changed(policy).apply(schedule)
