"""Why did this not run at 09:00? One sentence about any instant of a schedule, with its evidence.

The first of these that exists is the answer: the event of the nominal time; a skip that covers it; the definition
of that instant (the rows, or a revision of them); how far Beat has come. A nominal time is looked for from the
instant on and before `width` later, so that "09:00" is the whole minute.
"""

from dataclasses import replace
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from agents.kernel.durations import in_words
from runs.db.sql import database_now
from triggers.models import Schedule
from triggers.schedules import clock as local_time
from triggers.schedules.clock import just_before
from triggers.schedules.explain.evidence import editor_at, silence_at
from triggers.schedules.explain.fire_reasons import what_fired
from triggers.schedules.explain.skip_reasons import forgotten, kept_since, what_held, what_was_skipped, why_off
from triggers.schedules.explain.verdicts import MINUTE, Question
from triggers.schedules.explain.verdicts import Verdict as Verdict
from triggers.schedules.explain.verdicts import WhyAnswer as WhyAnswer
from triggers.schedules.plans import history_of
from triggers.schedules.rules.interval import Interval

IN_UTC = ZoneInfo("UTC")


def why(
    schedule: Schedule,
    at: datetime,
    width: timedelta = MINUTE,
    *,
    zone: ZoneInfo | None = None,
    now: datetime | None = None,
) -> WhyAnswer:
    """The outcome of the schedule at `at`, or why it did not fire. A time without an offset is one of `zone`, or of the
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
    history = history_of(schedule)
    # A local time is read on the clock of the rule that held then.
    then = (one.zone for one in reversed(history) if one.since < local_time.meant(at, one.zone))
    zone = zone or next(then, history[0].zone)
    start = local_time.meant(at, zone)
    end = start + width
    around = [one for one in history if one.since < end and (one.until is None or one.until >= start)] or history[:1]
    owners = ((one, nominal) for one in (*around, history[-1]) if (nominal := one.owns(start, end)))
    held, nominal = next(owners, (around[0], None))
    note = local_time.note_on(at, zone, follows_elapsed_time=held.follows_elapsed_time)
    return Question(
        schedule=schedule, start=start, end=end, zone=zone, note=note, now=now,
        history=history, held=held, nominal=nominal,
    )  # fmt: skip


def _second_pass(question: Question) -> WhyAnswer | None:
    """The explanation for a time of a crontab with fixed hours that the clocks show for the second time."""
    held, first, width = question.held, local_time.shown_before(question.start, question.zone), question.width
    if question.nominal or first is None or held.follows_elapsed_time:
        return None
    named = held.names(first, first + width)
    if named is None:
        return None
    before = why(question.schedule, first, width, zone=question.zone, now=question.now)
    clock = local_time.clock(question.start, question.zone)
    text = f"{clock} came twice that night, and it fires the first time, at {local_time.clock(named, IN_UTC)} UTC. {before.text}"
    return replace(before, verdict=Verdict.TWICE, text=text, at=question.start)


def _accounted_for(question: Question) -> WhyAnswer | None:
    schedule, nominal = question.schedule, question.nominal
    if nominal is None or schedule.accounted_until is None or nominal > schedule.accounted_until:
        return None
    if nominal < kept_since(question):
        return forgotten(question)
    if schedule.trigger_id is None:
        text = "It was handed to Celery as an ordinary task; its result is among Celery's results."
        return question.answer(Verdict.SENT, text)
    return question.answer(Verdict.UNKNOWN, "Beat accounted for it, but its event was deleted.")


def _not_named(question: Question) -> WhyAnswer | None:
    if question.nominal is not None:
        return None
    definition = question.held.definition
    before, after = question.nearest
    if before and after:
        around = f"It names {question.span(before, after, 'before it, and')} after it."
    elif near := before or after:
        around = f"The only one near it is {question.say(near)}."
    else:
        around = "It names no time near it."
    off = "" if definition.enabled else why_off(question)
    text = f"Its rule does not name this time: {definition.describe()}. {around}"
    return question.answer(Verdict.NOT_NAMED, " ".join(filter(None, [text, _named_by_another(question), off])))


def _named_by_another(question: Question) -> str:
    """Another rule, earlier or later, that names the time: by the instant, or by the clock of its zone."""
    clock, held = question.start.astimezone(question.zone).replace(tzinfo=None), question.held
    for one in question.history:
        starts = (question.start, local_time.meant(clock, one.zone))
        if one is not held and any(one.names(start, start + question.width) for start in starts):
            is_later = one.since > held.since
            edit = one.since if is_later else one.until or question.now
            verb, (by, _) = "is" if is_later else "was", editor_at(question.schedule, edit)
            words, rule = one.definition.describe(), one.plan and one.plan.rule
            said = f"its rule {verb} “{words}”"
            if isinstance(rule, Interval) and rule.anchor and words == held.definition.describe():
                said = f"its interval {verb} counted from {question.say(rule.anchor)}"
            return f"{'Only since' if is_later else 'Until'} {question.say(edit)} {said}{', changed by ' + by if by else ''}."
    return ""


def _owed(question: Question) -> WhyAnswer:
    schedule, plan, nominal = question.schedule, question.held.plan, question.nominal
    if plan is None or nominal is None:
        return question.answer(Verdict.UNKNOWN, "No record is left of what was to happen then.")
    if schedule.problem:
        return question.answer(Verdict.BROKEN, f"It cannot fire until it is edited: {schedule.problem}.")
    due = plan.due(nominal)
    if due > question.now:
        return _to_come(question, due)
    if silence := silence_at(question.now):
        reason = f": no Beat has been alive{f' since {question.say(silence.since)}' if silence.since else ''}"
    elif schedule.stale:
        reason = f": Beat is working in its edit of {question.say(schedule.edited_at)}"
    else:
        reason = ", although a Beat is alive; its log has details"
    text = f"It was due at {question.say(due)} and has not fired yet{reason}."
    return question.answer(Verdict.LATE, text, ("Due", question.say(due)))


def _to_come(question: Question, due: datetime) -> WhyAnswer:
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
    schedule, held = question.schedule, question.held
    plan, most = held.plan, 1 if held.definition.one_off else held.definition.max_fires
    if plan is None or most is None:
        return False, None
    left = 1 if plan.once else max(0, most - schedule.fires)
    first = next(plan.fires(schedule.accounted_until or just_before(schedule.created_at)), None)
    if first is None or left == 0:
        return True, None
    over = plan.count(first, question.time) - left
    return (True, plan.nth_newest(first, question.time, over + 1)) if over > 0 else (False, None)
