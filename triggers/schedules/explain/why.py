"""Why did this not run at 09:00? One honest sentence about any instant of a schedule, with its evidence.

The evidence is heard in this order: the event of the nominal time, and what came of it; a Skip that covers it; what
decided at that instant when the schedule fires (its rows, or a Revision of them); how far Beat has come. A nominal time
is looked for from the instant on and before `width` later, so that "09:00" is the whole minute.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from agents.durations import in_words
from runs.db.sql import database_now
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules import clock as local_time
from triggers.schedules.clock import just_before, zone_of
from triggers.schedules.explain.fired import what_fired
from triggers.schedules.explain.not_fired import (
    forgotten,
    kept_since,
    what_could_not_be,
    what_was_skipped,
    why_paused,
    why_retired,
)
from triggers.schedules.explain.outages import silence_at
from triggers.schedules.explain.periods import change_at
from triggers.schedules.explain.verdicts import MINUTE, Question, answer, nearest
from triggers.schedules.explain.verdicts import Answer as Answer
from triggers.schedules.explain.verdicts import Verdict as Verdict
from triggers.schedules.plans import Period, periods_of
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.interval import Interval

IN_UTC = ZoneInfo("UTC")


def why(
    schedule: Schedule,
    at: datetime,
    width: timedelta = MINUTE,
    *,
    zone: ZoneInfo | None = None,
    now: datetime | None = None,
) -> Answer:
    """What became of the schedule at `at`, and why it did not fire. A time without an offset is one of `zone`, or of the
    schedule's own zone at that time (UTC for what has no crontab). `now` is the database's, unless a test chooses it."""
    question = _ask(schedule, at, width, zone, now or database_now())
    return (
        what_fired(question)
        or what_was_skipped(question)
        or _what_came_twice(question)
        or what_could_not_be(question)
        or _what_is_accounted_for(question)
        or _what_is_not_named(question)
        or _what_is_owed(question)
    )


def _ask(schedule: Schedule, at: datetime, width: timedelta, zone: ZoneInfo | None, now: datetime) -> Question:
    periods = periods_of(schedule)
    zone = zone or _zone_at(periods, at)
    start = local_time.meant(at, zone)
    end = start + width
    owners = ((period, nominal) for period in periods if (nominal := period.owns(start, end)))
    holds = next((period for period in reversed(periods) if period.since < start), periods[0])
    period, nominal = next(owners, (holds, None))
    note = local_time.note_on(at, zone, follows_elapsed_time=_follows_elapsed_time(period))
    return Question(
        schedule=schedule, start=start, end=end, zone=zone, note=note, now=now,
        periods=periods, period=period, nominal=nominal,
    )  # fmt: skip


def _zone_at(periods: Sequence[Period], at: datetime) -> ZoneInfo:
    """The zone of the rule that held at a local time, each rule's own clock read."""
    for period in reversed(periods):
        zone = _zone_of(period)
        if period.since < local_time.meant(at, zone):
            return zone
    return _zone_of(periods[0])


def _zone_of(period: Period) -> ZoneInfo:
    """Of its crontab; else that of its active hours, or UTC."""
    try:
        own = "" if period.definition.values.get("crontab") else period.definition.values.get("active_zone")
        return zone_of(own) if own else period.definition.zone
    except RuleError:
        return IN_UTC


# What the clocks did


def _follows_elapsed_time(period: Period) -> bool:
    rule = period.plan and period.plan.rule
    return rule is not None and (rule.is_wildcard if isinstance(rule, Cron) else True)


def _what_came_twice(question: Question) -> Answer | None:
    first = local_time.shown_before(question.start, question.zone)
    if question.nominal or first is None or question.period.plan is None or _follows_elapsed_time(question.period):
        return None
    named = question.period.names(first, first + (question.end - question.start))
    if named is None:
        return None
    before = why(question.schedule, first, question.end - question.start, zone=question.zone, now=question.now)
    clock = local_time.clock(question.start, question.zone)
    text = f"{clock} came twice that night, and it fires the first time, at {local_time.clock(named, IN_UTC)} UTC. {before.text}"
    return replace(before, verdict=Verdict.TWICE, text=text, at=question.start)


# How far Beat has come


def _what_is_accounted_for(question: Question) -> Answer | None:
    schedule, nominal = question.schedule, question.nominal
    if nominal is None or schedule.accounted_until is None or nominal > schedule.accounted_until:
        return None
    if nominal < kept_since(question):
        return forgotten(question)
    if schedule.trigger_id is None:
        text = "It was handed to Celery as an ordinary task; what became of it is among Celery's results."
        return answer(question, Verdict.SENT, text)
    return answer(question, Verdict.UNKNOWN, "Beat accounted for it, but its event is gone: somebody deleted it.")


def _what_is_not_named(question: Question) -> Answer | None:
    if question.nominal is not None:
        return None
    state = question.period.definition
    text = f"Its rule does not name this time: {state.describe()}."
    before, after = nearest(question)
    if before and after:
        text += f" It names {question.span(before, after, 'before it, and')} after it."
    elif near := before or after:
        text += f" The only one near it is {question.say(near)}."
    else:
        text += " It names no time near it."
    if expectation := _expectation(question):
        text += f" {expectation}"
    if not state.enabled:
        text += f" {why_retired(question) or why_paused(question)}"
    return answer(question, Verdict.NOT_NAMED, text)


def _expectation(question: Question) -> str:
    """Another rule, of before or of later, that names the time asked for: by the instant, or by the clock of its zone."""
    here = question.periods.index(question.period)
    for offset, period in enumerate(question.periods):
        if offset != here and _would_name(question, period):
            if offset > here:
                words, since = _told_apart(question, period, "is"), period.since
                return f"Only since {question.say(since)} {words}{_by(question, since)}."
            words, until = _told_apart(question, period, "was"), period.until or question.now
            return f"Until {question.say(until)} {words}{_by(question, until)}."
    return ""


def _told_apart(question: Question, period: Period, verb: str) -> str:
    """How its rule differs from the one that held at the time asked for."""
    words, rule = period.definition.describe(), period.plan.rule if period.plan else None
    if words == question.period.definition.describe() and isinstance(rule, Interval) and rule.anchor:
        return f"its interval {verb} counted from {question.say(rule.anchor)}"
    return f"its rule {verb} “{words}”"


def _would_name(question: Question, period: Period) -> bool:
    clock = question.start.astimezone(question.zone).replace(tzinfo=None)
    width = question.end - question.start
    starts = (question.start, local_time.meant(clock, _zone_of(period)))
    return any(period.names(start, start + width) for start in starts)


def _by(question: Question, edit: datetime) -> str:
    change = change_at(question.schedule, edit)
    return f", changed by {change.by}" if change else ""


def _what_is_owed(question: Question) -> Answer:
    schedule, plan, nominal = question.schedule, question.period.plan, question.nominal
    if plan is None or nominal is None:
        return answer(question, Verdict.UNKNOWN, "Nothing is left that tells what was to happen then.")
    due = plan.due(nominal)
    if schedule.problem:
        return answer(question, Verdict.BROKEN, f"It cannot fire until it is edited: {schedule.problem}.")
    if nominal > question.now or due > question.now:
        return _to_come(question, due)
    silence = silence_at(question.now)
    if silence:
        since = f" since {question.say(silence.since)}" if silence.since else ""
        text = f"It was due at {question.say(due)} and has not fired yet: no Beat has been alive{since}."
    elif schedule.stale:
        edit = question.say(schedule.edited_at)
        text = f"It was due at {question.say(due)} and has not fired yet: Beat is working in its edit of {edit}."
    else:
        text = f"It was due at {question.say(due)} and has not fired yet, although a Beat is alive; its log says more."
    return answer(question, Verdict.LATE, text, ("Due", question.say(due)))


def _to_come(question: Question, due: datetime) -> Answer:
    schedule, nominal = question.schedule, question.time
    is_retired, last = _retires_before(question)
    if is_retired:
        text = "It will have fired as often as it is to by then, and retire."
        return answer(question, Verdict.RETIRED, f"{text} The last one is {question.say(last)}." if last else text)
    moved = f" (jitter and spread move it by {in_words(due - nominal)})" if due > nominal else ""
    text = f"It is still to come: it fires at {question.say(due)}{moved}."
    if schedule.trigger and schedule.trigger.status != "active":
        kept = "its event will be held" if schedule.trigger.status == "paused" else "its event will come to nothing"
        text += f" Its trigger {schedule.trigger.slug} is {schedule.trigger.status} now: {kept}."
    if silence_at(question.now):
        text += " No Beat is alive now."
    return answer(question, Verdict.TO_COME, text, ("Due", question.say(due)))


def _retires_before(question: Question) -> tuple[bool, datetime | None]:
    """Will it have fired as often as it is to before this nominal time? Then also when the last time is, if there is one. The
    fires are counted, not listed: there may be two thousand million."""
    schedule, plan, state, nominal = question.schedule, question.period.plan, question.period.definition, question.time
    if plan is None or (state.max_fires is None and not plan.once):
        return False, None
    left = 1 if plan.once else max(0, (state.max_fires or 0) - schedule.fires)
    first = next(plan.fires(schedule.accounted_until or just_before(schedule.created_at)), None)
    if first is None or left == 0:
        return True, None
    over = plan.count(first, nominal) - left
    return (True, plan.nth_newest(first, nominal, over + 1)) if over > 0 else (False, None)
