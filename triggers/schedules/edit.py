"""Schedules as rows: what a person does to one. An edit changes the rows and nothing else; Beat sees to the rest."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.db import transaction
from django.utils.text import slugify
from django_celery_beat.models import PeriodicTask

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.report import Report
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models.audit import changes, record
from triggers.exceptions import RuleError
from triggers.matching.trigger_policy import policy_for
from triggers.models import Schedule, Trigger
from triggers.schedules.periodic_tasks import message_of
from triggers.schedules.plans import plan_of
from triggers.schedules.preview import DEFAULT, describe, refuse_never
from triggers.schedules.rows import VANISHED, add_schedule, read_again, remove, set_enabled, set_rule
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import Rule
from triggers.schedules.terms.policy import SchedulePolicy
from triggers.sources.manual import fire


@not_in_atomic_body
def create_schedule(
    *,
    name: str,
    rule: Rule,
    agent: str = "",
    trigger: Trigger | None = None,
    policy: SchedulePolicy = DEFAULT,
    by: str,
) -> Schedule:
    """Wake an agent by a new trigger of its own, or an existing trigger, on a new schedule. RuleError if that makes no
    sense: its `field` names what to change."""
    _refuse_taken(name)
    policy.check()
    refuse_never(rule, policy)
    with transaction.atomic():
        trigger = trigger or _create_trigger(name, agent, policy.kind)
        schedule = add_schedule(trigger, name=name, rule=rule, policy=policy)
        chosen = _dumped(policy, policy.changes_from(DEFAULT))
        record(by, "create", schedule, name=name, rule=rule.words, trigger=trigger.slug, **chosen)
    return schedule


@not_in_atomic_body
def edit_schedule(
    schedule: Schedule, *, rule: Rule | None = None, policy: SchedulePolicy | None = None, by: str
) -> Schedule:
    """Give it another rule, another policy, or both; a deploy will keep what differs. What stays the same is no edit.
    RuleError if it makes no sense: its `field` names what to change."""
    with transaction.atomic():
        schedule = locked(schedule)
        now_rule, now_policy = rule_here(schedule), SchedulePolicy.of(schedule)
        policy = policy or now_policy
        changed = policy.changes_from(now_policy)
        is_other = rule is not None and rule != now_rule
        if changed or is_other:
            policy.check()
            if other := rule or now_rule:
                refuse_never(other, policy)
        if rule and is_other:
            set_rule(schedule, rule)
        if changed:
            policy.apply(schedule)
        _take_over(schedule, ["rule"] * is_other + changed)
        if changed or is_other:
            said = {"rule": rule.words} if rule and is_other else {}
            before = {"rule": now_rule.words if now_rule else "", **_dumped(now_policy, changed)}
            record(by, "edit", schedule, **changes(before, {**said, **_dumped(policy, changed)}))
    return read_again(schedule)


def locked(schedule: Schedule) -> Schedule:
    """Lock and read it; no other session can edit it before the caller's transaction ends."""
    # The task before the schedule: the order of every lock.
    PeriodicTask.objects.select_for_update().get(pk=schedule.task_id)
    return read_again(schedule)


@not_in_atomic_body
def pause_schedule(schedule: Schedule, *, by: str, note: str = "") -> Schedule:
    """Stop it until it is resumed; what falls in between is not missed and never caught up."""
    with transaction.atomic():
        _switch(schedule, False)
        Schedule.objects.filter(pk=schedule.pk).update(paused_by=by, paused_note=note)
        record(by, "pause", schedule, name=schedule.task.name, note=note)
    return read_again(schedule)


@not_in_atomic_body
def resume_schedule(schedule: Schedule, *, by: str) -> Schedule:
    """Let it fire again, counted from now. IllegalState if it never would, with what to change first."""
    with transaction.atomic():
        _refuse_spent(schedule)
        _switch(schedule, True)
        record(by, "resume", schedule, name=schedule.task.name)
    return read_again(schedule)


def fire_schedule(schedule: Schedule, *, report: Report | None = None, by: str) -> UUID | None:
    """Run it now, as it goes on by itself: the id of the event for its trigger, None for an ordinary task, whose message
    is sent, and which is no run to report. TriggerDisabled if nothing would wake; RuleError if the task's arguments are not JSON."""
    with transaction.atomic():
        if trigger := schedule.trigger:
            data = {"schedule": schedule.task.name}
            data = data if schedule.data is None else {**data, "data": schedule.data}
            event_id = fire(trigger, data=data, report=report, by=by)
        else:
            event_id = None
            message_of(schedule.task, database_now()).save()
            nudge_dispatcher()
        record(by, "fire", schedule, name=schedule.task.name, event=event_id and str(event_id))
    return event_id


@not_in_atomic_body
def delete_schedule(schedule: Schedule, *, by: str) -> None:
    """Delete it; its trigger, its events and its runs stay. IllegalState if the code declares it."""
    if is_declared(schedule):
        raise IllegalState(
            f"Schedule {schedule.task.name} is declared in the code, and the next deploy would bring it back:"
            " pause it, or take it out of the code.",
            status="declared",
        )
    with transaction.atomic():
        record(by, "delete", schedule, name=schedule.task.name)
        remove(schedule)


def is_declared(schedule: Schedule) -> bool:
    """Does the code declare it? Its trigger may have others, made by operators."""
    declared = (schedule.trigger and schedule.trigger.declared) or {}
    return "rule" in declared and VANISHED not in declared and schedule.task.name == schedule.trigger.slug  # type: ignore[union-attr]


# Writing the rows


def _switch(schedule: Schedule, enabled: bool) -> None:
    # Locked: of two requests to switch it, one is refused.
    task = PeriodicTask.objects.select_for_update().get(pk=schedule.task_id)
    if task.enabled == enabled:
        off = schedule.rest if schedule.rest not in ("", Schedule.Rest.OFF) else "paused"
        status = "active" if enabled else off
        raise IllegalState(f"Schedule {task.name} is {status} already.", status=status)
    set_enabled(schedule, enabled)


def _refuse_spent(schedule: Schedule) -> None:
    name, most = schedule.task.name, schedule.max_fires
    if most is not None and schedule.fires >= most:
        raise IllegalState(
            f"Schedule {name} has fired {schedule.fires} times and may {most}: raise max_fires, or clear it, first.",
            status=Schedule.Rest.USED_UP,
        )
    try:
        if next(plan_of(schedule).fires(database_now()), None) is not None:
            return
    except RuleError:
        return  # Beat will say so
    raise IllegalState(
        f"Schedule {name} would never fire again ({describe(schedule)}): give it another rule, or a later end, first.",
        status=Schedule.Rest.OVER,
    )


def rule_here(schedule: Schedule) -> Rule | None:
    """The schedule's rule; None if its rows have no valid one."""
    try:
        return rule_of(schedule.task)
    except RuleError:
        return None


def _dumped(policy: SchedulePolicy, names: Sequence[str]) -> dict[str, Any]:
    dumped = policy.dump()
    return {name: dumped[name] for name in names}


def _take_over(schedule: Schedule, fields: Sequence[str]) -> None:
    trigger = schedule.trigger
    if fields and trigger and is_declared(schedule) and not set(fields) <= set(trigger.overrides):
        trigger.overrides = sorted({*trigger.overrides, *fields})
        trigger.save(update_fields=["overrides"])


def _create_trigger(name: str, agent: str, kind: str) -> Trigger:
    policy = policy_for(agent)
    slug = slugify(name)[:100]
    if not slug or Trigger.objects.filter(slug=slug).exists():
        raise RuleError(
            f"{name!r} gives the trigger the slug {slug!r}, which is empty or taken; choose another name", field="name"
        )
    # A heartbeat that is woken while it runs looks once more.
    overlap = Trigger.Overlap.QUEUE_ONE if kind == "heartbeat" else Trigger.Overlap.SKIP
    return Trigger.objects.create(slug=slug, agent=agent, overlap=overlap, policy=policy)


def _refuse_taken(name: str) -> None:
    if not name.strip() or len(name) > 200:
        raise RuleError("a schedule's name has 1 to 200 characters", field="name")
    if PeriodicTask.objects.filter(name=name).exists():
        raise RuleError(f"there is a schedule {name!r} already; choose another name", field="name")
