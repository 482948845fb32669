"""Why did this not run at 09:00? One sentence about any instant of a schedule, with its evidence.

The first of these that there is answers: the event of the nominal time; a skip that covers it; what the definition of
that instant said (the rows, or a revision of them); how far Beat has come. A nominal time is looked for from the instant
on and before `width` later, so that "09:00" is the whole minute.
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
from triggers.schedules.explain.edits import change_at
from triggers.schedules.explain.fired import what_fired
from triggers.schedules.explain.not_fired import (
    forgotten,
    kept_since,
    what_held,
    what_was_skipped,
    why_paused,
    why_retired,
)
from triggers.schedules.explain.outages import silence_at
from triggers.schedules.explain.verdicts import MINUTE, Question
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
        or _second_pass(question)
        or what_held(question)
        or _accounted_for(question)
        or _not_named(question)
        or _owed(question)
    )


def _ask(schedule: Schedule, at: datetime, width: timedelta, zone: ZoneInfo | None, now: datetime) -> Question:
    periods = periods_of(schedule)
    zone = zone or _zone_at(periods, at)
    start = local_time.meant(at, zone)
    end = start + width
    owners = ((period, nominal) for period in periods if (nominal := period.owns(start, end)))
    held = next((period for period in reversed(periods) if period.since < start), periods[0])
    period, nominal = next(owners, (held, None))
    note = local_time.note_on(at, zone, follows_elapsed_time=_follows_elapsed_time(period))
    return Question(
        schedule=schedule, start=start, end=end, zone=zone, note=note, now=now,
        periods=periods, period=period, nominal=nominal,
    )  # fmt: skip


def _zone_at(periods: Sequence[Period], at: datetime) -> ZoneInfo:
    """The zone of the rule that held at a local time, read on the clock of each rule."""
    zones = ((period, _zone_of(period)) for period in reversed(periods))
    return next((zone for period, zone in zones if period.since < local_time.meant(at, zone)), _zone_of(periods[0]))


def _zone_of(period: Period) -> ZoneInfo:
    """Of its crontab; else that of its active hours, or UTC."""
    values = period.definition.values
    try:
        own = "" if values.get("crontab") else values.get("active_zone")
        return zone_of(own) if own else period.definition.zone
    except RuleError:
        return IN_UTC


def _follows_elapsed_time(period: Period) -> bool:
    rule = period.plan and period.plan.rule
    return rule is not None and (rule.is_wildcard if isinstance(rule, Cron) else True)


def _second_pass(question: Question) -> Answer | None:
    """Of a time that a crontab with fixed hours names, where the clocks show it for the second time."""
    period, first = question.period, local_time.shown_before(question.start, question.zone)
    if question.nominal or first is None or period.plan is None or _follows_elapsed_time(period):
        return None
    named = period.names(first, first + (question.end - question.start))
    if named is None:
        return None
    before = why(question.schedule, first, question.end - question.start, zone=question.zone, now=question.now)
    clock = local_time.clock(question.start, question.zone)
    text = f"{clock} came twice that night, and it fires the first time, at {local_time.clock(named, IN_UTC)} UTC. {before.text}"
    return replace(before, verdict=Verdict.TWICE, text=text, at=question.start)


def _accounted_for(question: Question) -> Answer | None:
    schedule, nominal = question.schedule, question.nominal
    if nominal is None or schedule.accounted_until is None or nominal > schedule.accounted_until:
        return None
    if nominal < kept_since(question):
        return forgotten(question)
    if schedule.trigger_id is None:
        text = "It was handed to Celery as an ordinary task; its result is among Celery's results."
        return question.answer(Verdict.SENT, text)
    return question.answer(Verdict.UNKNOWN, "Beat accounted for it, but its event was deleted.")


def _not_named(question: Question) -> Answer | None:
    if question.nominal is not None:
        return None
    definition = question.period.definition
    texts = [f"Its rule does not name this time: {definition.describe()}."]
    before, after = question.nearest
    if before and after:
        texts.append(f"It names {question.span(before, after, 'before it, and')} after it.")
    elif near := before or after:
        texts.append(f"The only one near it is {question.say(near)}.")
    else:
        texts.append("It names no time near it.")
    texts.append(_named_by_another(question))
    if not definition.enabled:
        texts.append(why_retired(question) or why_paused(question, question.time, question.time))
    return question.answer(Verdict.NOT_NAMED, " ".join(filter(None, texts)))


def _named_by_another(question: Question) -> str:
    """Another rule, earlier or later, that names the time: by the instant, or by the clock of its zone."""
    here = question.periods.index(question.period)
    for offset, period in enumerate(question.periods):
        if offset != here and _would_name(question, period):
            is_later = offset > here
            edit = period.since if is_later else period.until or question.now
            change = change_at(question.schedule, edit)
            rule = _told_apart(question, period, "is" if is_later else "was")
            by = f", changed by {change.by}" if change else ""
            return f"{'Only since' if is_later else 'Until'} {question.say(edit)} {rule}{by}."
    return ""


def _told_apart(question: Question, period: Period, verb: str) -> str:
    """The difference between its rule and the one that held at the time of the question."""
    words, rule = period.definition.describe(), period.plan.rule if period.plan else None
    if words == question.period.definition.describe() and isinstance(rule, Interval) and rule.anchor:
        return f"its interval {verb} counted from {question.say(rule.anchor)}"
    return f"its rule {verb} “{words}”"


def _would_name(question: Question, period: Period) -> bool:
    clock = question.start.astimezone(question.zone).replace(tzinfo=None)
    width = question.end - question.start
    starts = (question.start, local_time.meant(clock, _zone_of(period)))
    return any(period.names(start, start + width) for start in starts)


def _owed(question: Question) -> Answer:
    schedule, plan, nominal = question.schedule, question.period.plan, question.nominal
    if plan is None or nominal is None:
        return question.answer(Verdict.UNKNOWN, "No record is left of what was to happen then.")
    if schedule.problem:
        return question.answer(Verdict.BROKEN, f"It cannot fire until it is edited: {schedule.problem}.")
    due = plan.due(nominal)
    if due > question.now:
        return _to_come(question, due)
    silence = silence_at(question.now)
    if silence:
        reason = f": no Beat has been alive{f' since {question.say(silence.since)}' if silence.since else ''}"
    elif schedule.stale:
        reason = f": Beat is working in its edit of {question.say(schedule.edited_at)}"
    else:
        reason = ", although a Beat is alive; its log says more"
    text = f"It was due at {question.say(due)} and has not fired yet{reason}."
    return question.answer(Verdict.LATE, text, ("Due", question.say(due)))


def _to_come(question: Question, due: datetime) -> Answer:
    schedule, nominal = question.schedule, question.time
    is_retired, last = _retires_before(question)
    if is_retired:
        text = "It will have fired as often as it may by then, and retire."
        return question.answer(Verdict.RETIRED, f"{text} The last one is {question.say(last)}." if last else text)
    moved = f" (jitter and spread move it by {in_words(due - nominal)})" if due > nominal else ""
    text = f"It is still to come: it fires at {question.say(due)}{moved}."
    if schedule.trigger and schedule.trigger.status != "active":
        kept = "its event will be held" if schedule.trigger.status == "paused" else "its event will start no run"
        text += f" Its trigger {schedule.trigger.slug} is {schedule.trigger.status} now: {kept}."
    if silence_at(question.now):
        text += " No Beat is alive now."
    return question.answer(Verdict.TO_COME, text, ("Due", question.say(due)))


def _retires_before(question: Question) -> tuple[bool, datetime | None]:
    """Will it have fired as often as it may before this nominal time, and when is the last time, if there is one? The fires
    are counted, not listed: there may be two thousand million."""
    schedule, plan, definition = question.schedule, question.period.plan, question.period.definition
    if plan is None or (definition.max_fires is None and not plan.once):
        return False, None
    left = 1 if plan.once else max(0, (definition.max_fires or 0) - schedule.fires)
    first = next(plan.fires(schedule.accounted_until or just_before(schedule.created_at)), None)
    if first is None or left == 0:
        return True, None
    over = plan.count(first, question.time) - left
    return (True, plan.nth_newest(first, question.time, over + 1)) if over > 0 else (False, None)
