"""Wakes that runs set for their own trigger: single wakes, which wait in the outbox, and schedules. A wake by time
begins a new causal chain. So that wakes do not allow faster loops than events, they keep the spacing of
WAKEFUL_LOOP_RATE; and a trigger has at most WAKEFUL_MAX_WAKES pending.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from heapq import merge
from itertools import islice, pairwise, takewhile
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db.models import Min
from django.db.models.fields.json import KT

from agents.exceptions import Permanent
from agents.kernel.durations import in_words
from agents.kernel.effects import Effects, Standing
from runs.attempt.effects import SCHEDULE, WAKEUP
from runs.db.patience import Locked, no_longer_than
from runs.db.sql import database_now
from runs.models import OutboxMessage
from runs.models.audit import record
from triggers.exceptions import RuleError
from triggers.matching.flow_control import Intake
from triggers.models import Schedule, Trigger
from triggers.schedules.heartbeats import require_heartbeat
from triggers.schedules.rows import add_schedule, remove, set_rule
from triggers.schedules.rules.as_json import parse_rule, rule_as_json
from triggers.schedules.rules.rows import rule_of
from triggers.schedules.rules.rule import MINUTES_OF_A_DAY, Rule, next_fires
from triggers.sources.wakeup import drop_wake

log = structlog.get_logger(__name__)

NAME_LENGTH = 200  # of a schedule
IN_A_ROW = 4  # times that schedules which runs have set fire together in as many spacings
LOOK_AHEAD = timedelta(days=2)
PATIENCE = timedelta(milliseconds=10)  # for a lock; meanwhile nothing is dispatched
LATER = timedelta(seconds=1)
LAST = "~"  # after every instant in ISO 8601


# Setting them: called in the commit of the run


def check_ahead(trigger_id: UUID | None, effects: Effects) -> None:
    """Raises Permanent if a run of this trigger must not set these wakes; the message gives the reason."""
    if trigger_id is None:
        raise Permanent(
            "this run was spawned by another: it has no trigger of its own to wake, to pace or to give a schedule"
        )
    names = [wake.key for wake in effects.wakes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise Permanent(f"this run sets two wakes under the key {min(twice)!r}; give each a key of its own")
    trigger = Trigger.objects.filter(pk=trigger_id).only("slug", "policy").first()
    slug = trigger.slug if trigger else ""
    if effects.paces:
        require_heartbeat(trigger_id, slug)
    for standing in effects.standings:
        _check(standing, slug)
    standings = [*_committed(trigger_id), *effects.standings]
    for standing in effects.standings:
        if trigger and standing.spacing and (rule := _rule_set_by(standing)):
            _require_spacing(
                standing, rule, max(standing.spacing, _own_spacing(trigger)), _rules_beside(trigger, standings)
            )
    _refuse_too_many(trigger_id, slug, len(effects.wakes), standings)


def _committed(trigger_id: UUID) -> Iterator[Standing]:
    """Wakes that runs of the trigger, including earlier steps of this run, have committed and the outbox has not set
    yet.
    """
    for payload in (
        OutboxMessage.objects.filter(topic=SCHEDULE, key=str(trigger_id))
        .order_by("pk")
        .values_list("payload", flat=True)
    ):
        every = payload["every"]
        yield Standing(
            name=payload["name"],
            cron=payload["cron"],
            tz=payload["tz"],
            every=None if every is None else timedelta(seconds=every),
        )


def _check(standing: Standing, slug: str) -> None:
    name = _name(slug, standing.name)
    if len(name) > NAME_LENGTH:
        raise Permanent(f"the schedule's name {name!r} has {len(name)} characters; {NAME_LENGTH} is the most")
    try:
        _rule_set_by(standing)
    except RuleError as error:
        raise Permanent(f"schedule {standing.name!r}: {error}") from error


def _require_spacing(standing: Standing, rule: Rule, spacing: timedelta, beside: Mapping[str, Rule]) -> None:
    """Check the spacing of the schedule, and of all schedules that runs have set together. Looks at two days of a
    crontab that is dense enough to be refused. Intervals count as if they began now, where most of them coincide.
    """
    now = database_now()
    fires = list(islice(next_fires(rule, now), MINUTES_OF_A_DAY))
    if any(after - before < spacing for before, after in pairwise(fires)):
        raise Permanent(
            f"schedule {standing.name!r} would fire more often than every {in_words(spacing)}, which is the most that is "
            "allowed here"
        )
    others = [other for name, other in beside.items() if name != standing.name]
    together = list(merge(*(_next_days(each, now) for each in [rule, *others])))
    if any(last - first < IN_A_ROW * spacing for first, last in zip(together, together[IN_A_ROW:], strict=False)):
        raise Permanent(
            f"schedule {standing.name!r} and those that runs of this trigger have set before would together fire more than "
            f"{IN_A_ROW} times in {in_words(IN_A_ROW * spacing)}, which is the most that is allowed here"
        )


def _next_days(rule: Rule, now: datetime) -> Iterator[datetime]:
    return takewhile(lambda fire: fire < now + LOOK_AHEAD, next_fires(rule, now))


def _rules_beside(trigger: Trigger, standings: Iterable[Standing]) -> dict[str, Rule]:
    """The rules of the schedules that runs of the trigger have set, and of these, by name."""
    there = Schedule.objects.filter(trigger=trigger, pk__in=_standing(trigger.slug)).select_related(
        "task__crontab", "task__interval", "task__clocked", "task__solar"
    )
    rules = {one.task.name.removeprefix(_name(trigger.slug, "")): _rule_of(one) for one in there}
    rules |= {standing.name: _rule_set_by(standing) for standing in standings}
    return {name: rule for name, rule in rules.items() if rule}


def _rule_of(schedule: Schedule) -> Rule | None:
    """None: its rows have no valid rule."""
    try:
        return rule_of(schedule.task)
    except RuleError:
        return None


def _rule_set_by(standing: Standing) -> Rule | None:
    """None: it removes its schedule."""
    return _rule(cron=standing.cron, tz=standing.tz, every=standing.every)


def _own_spacing(trigger: Trigger) -> timedelta:
    """The spacing of the trigger itself: by its rate, and by the fastest pace of its heartbeats."""
    rate = Intake.load(trigger.policy).rate
    paces = Schedule.objects.filter(trigger=trigger, pace_min__isnull=False)
    fastest: timedelta | None = paces.aggregate(fastest=Min("pace_min"))["fastest"]
    return max(rate.spacing if rate else timedelta(), fastest or timedelta())


def _refuse_too_many(trigger_id: UUID, slug: str, more_wakes: int, standings: Iterable[Standing]) -> None:
    most = settings.WAKEFUL_MAX_WAKES
    wakes = OutboxMessage.objects.filter(topic=WAKEUP, key=str(trigger_id))[: most + 1].count() + more_wakes
    standing = set(_standing(slug).filter(trigger=trigger_id).values_list("task__name", flat=True)[: most + 1])
    for wanted in standings:
        (standing.add if wanted.cron or wanted.every else standing.discard)(_name(slug, wanted.name))
    if wakes + len(standing) > most:
        raise Permanent(
            f"trigger {slug!r} would have {wakes} wakes and {len(standing)} schedules ahead that its runs have set; "
            f"WAKEFUL_MAX_WAKES is {most}"
        )


# When they are due, or committed: handlers of the outbox


def set_standing(payloads: Sequence[dict[str, Any]]) -> None:
    """Make, change or remove the schedules that runs have set; a rule that stays the same keeps its pace.

    What another session has locked is put off, and so is what came after it for the same trigger: the last word counts.
    """
    there, earliest = _triggers(payloads), _earliest_put_off(payloads)
    is_locked = False
    for payload in payloads:
        is_overtaking = earliest.get(payload["trigger"], LAST) < payload.get("since", LAST)
        is_locked = is_locked or is_overtaking or not _set_unless_locked(there, payload)
        if is_locked:
            _put_off(payload)


def _earliest_put_off(payloads: Sequence[dict[str, Any]]) -> dict[str, str]:
    """By trigger, since when its oldest postponed wake, except these, has waited."""
    waiting = OutboxMessage.objects.filter(
        topic=SCHEDULE, key__in={one["trigger"] for one in payloads}, payload__has_key="since"
    )
    return dict(waiting.values("key").annotate(first=Min(KT("payload__since"))).values_list("key", "first"))


def _put_off(payload: dict[str, Any]) -> None:
    now = database_now()
    payload = {"since": now.astimezone(UTC).isoformat(timespec="microseconds"), **payload}
    OutboxMessage.objects.create(topic=SCHEDULE, key=payload["trigger"], payload=payload, available_at=now + LATER)


def _set_unless_locked(there: Mapping[str, Trigger], payload: dict[str, Any]) -> bool:
    """False: another session holds rows that it needs, such as the one row that every edit of any schedule updates."""
    try:
        with no_longer_than(PATIENCE):
            if payload["trigger"] not in there:
                raise RuleError("its trigger is gone")
            _set(there[payload["trigger"]], payload)
    except RuleError as error:
        drop_wake(payload, str(error))
    except Locked:
        return False
    return True


def _set(trigger: Trigger, payload: dict[str, Any]) -> None:
    name, by = _name(trigger.slug, payload["name"]), f"run:{payload['run']}"
    rule = _rule(cron=payload["cron"], tz=payload["tz"], every=payload["every"])
    schedule = Schedule.objects.select_related("task").filter(task__name=name).first()
    if schedule and schedule.trigger_id != trigger.pk:
        raise RuleError(f"there is another schedule {name!r}")
    if rule is None:
        if schedule:
            record(by, "delete", schedule, name=name)
            remove(schedule)
    elif schedule is None:
        made = add_schedule(trigger, name=name, rule=rule)
        record(by, "create", made, name=name, rule=rule.words, trigger=trigger.slug)
    elif _says(schedule) != rule_as_json(rule):
        set_rule(schedule, rule)
        record(by, "edit", schedule, name=name, rule=rule.words)


def _says(schedule: Schedule) -> Any:
    rule = _rule_of(schedule)
    return rule and rule_as_json(rule)


def _rule(*, cron: str, tz: str, every: float | timedelta | None) -> Rule | None:
    """None: it is to be removed."""
    return parse_rule(cron=cron, tz=tz, every=every) if cron or every is not None else None


def _name(slug: str, name: str) -> str:
    return f"{slug}/{name}"


def _standing(slug: str) -> Any:
    return Schedule.objects.filter(task__name__startswith=_name(slug, ""))


def _triggers(payloads: Iterable[dict[str, Any]]) -> dict[str, Trigger]:
    """The triggers that still exist, by id."""
    return {str(id): trigger for id, trigger in Trigger.objects.in_bulk({one["trigger"] for one in payloads}).items()}
