"""Fields of a declared trigger that the operator owns."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from runs.audit import record
from triggers.declarations.sync import COLUMNS, declared_schedule
from triggers.dispatch.expressions import compile_expression
from triggers.dispatch.trigger_policy import check_policy
from triggers.models import Schedule, Trigger
from triggers.schedules import rows
from triggers.schedules.rules import as_json
from triggers.schedules.terms.policy import NAMES, SchedulePolicy

EDITABLE = (*COLUMNS[1:], "enabled")


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
        if schedule := declared_schedule(trigger):
            _reset_schedule(schedule, {name: declared[name] for name in given_back if name in declared})
        trigger.overrides = [name for name in trigger.overrides if name not in given_back]
        trigger.save()
        record(by, "reset_overrides", trigger, fields=given_back)
    return trigger


def _reset_schedule(schedule: Schedule, declared: Mapping[str, Any]) -> None:
    if "rule" in declared:
        rows.set_rule(schedule, as_json.parse_rule(**declared["rule"]))
    if policy := {name: value for name, value in declared.items() if name in NAMES}:
        SchedulePolicy.of(schedule).changed(policy).apply(schedule)
