"""Explain why a schedule did not fire: by the skip that covers the time, or by its definition at that time."""

from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings

from agents.kernel.durations import in_words
from triggers.exceptions import RuleError
from triggers.models import Schedule, Skip
from triggers.schedules.clock import just_before
from triggers.schedules.explain.evidence import editor_at
from triggers.schedules.explain.fire_reasons import why_late
from triggers.schedules.explain.verdicts import Question, Verdict, WhyAnswer

CAUGHT_UP = {
    "latest": "its catch-up policy “latest” fires only the newest of the missed times",
    "skip": "its catch-up policy “skip” fires none of the missed times",
    "all": "it ended, or was used up, before it could be caught up",
}
Reason = Skip.Reason


def what_was_skipped(question: Question) -> WhyAnswer | None:
    """None: no skip covers it."""
    skip = Skip.objects.filter(schedule=question.schedule.pk, last__gte=question.start).order_by("last").first()
    nominal = _nominal_in(question, skip) if skip else None
    if skip is None or nominal is None:
        return None
    question = replace(question, nominal=nominal)
    extent = "this time alone"
    if skip.first != skip.last:
        extent = f"{skip.count or 'many'} times, from {question.span(skip.first, skip.last, 'to')}"
    facts = [("Skipped", f"{skip.reason}: {extent}"), ("Decided", question.say(skip.created_at))]
    return question.answer(Verdict.SKIPPED, _why_skipped(question, skip), *facts, skip=skip)


def _nominal_in(question: Question, skip: Skip) -> datetime | None:
    """The nominal time of a skip in the stretch of the question; an interval's grid is that of the skip."""
    try:
        between = next(question.held.definition.plan(skip.first).raw(just_before(question.start)), None)
    except RuleError:
        between = None
    times = (skip.first, between, skip.last)
    within = (at for at in times if at and question.start <= at < question.end and skip.first <= at <= skip.last)
    return next(within, None)


def _why_skipped(question: Question, skip: Skip) -> str:
    definition, said = question.held.definition, f": {skip.detail}" if skip.detail else ""
    match skip.reason:
        case Reason.INACTIVE | Reason.EXCLUDED:
            return _why_closed(skip.reason, skip.detail)
        case Reason.PAUSED:
            return why_paused(question, skip.first, skip.last)
        case Reason.PACED:
            return f"Its agent had set another pace for this heartbeat{said}."
        case Reason.ELSEWHERE:
            return f"Another scheduler (django-celery-beat's own) ran meanwhile, and had fired it{said}."
        case Reason.REFUSED:
            return f"It could not be fired{said or ': its rows were refused'}."
        case Reason.WINDOW:
            window = f" of {in_words(definition.catch_up_window)}" if definition.catch_up_window else ""
            missed = f"It was missed longer ago than its catch-up window{window} when Beat came back."
        case Reason.MOST:
            most = definition.catch_up_max or "so many"
            missed = f"It was missed, and of the missed times it catches up at most {most}, the newest."
        case _:
            missed = f"It was missed, and {CAUGHT_UP[definition.catch_up]}."
    return f"{missed} {why_late(question, question.time)}"


def _why_closed(reason: str, detail: str) -> str:
    if reason == Reason.EXCLUDED:
        return f"That day is excluded: {detail}." if detail else "That day is excluded by a calendar."
    return f"That is outside its active hours ({detail})." if detail else "That is outside its active hours."


def why_off(question: Question) -> str:
    """Why it was off at the time of the question: it had retired, or was paused."""
    return _why_retired(question) or why_paused(question, question.time, question.time)


def why_paused(question: Question, first: datetime, last: datetime) -> str:
    """Since when it was switched off, until when, by whom, with which note."""
    schedule, held, history = question.schedule, question.held, question.history
    if held.definition.enabled:
        return f"It was switched off then, at least from {question.span(first, last, 'to')}."
    on = [one for one in history if one.definition.enabled]
    since = max((one.until for one in on if one.until and one.until <= held.since), default=history[0].since)
    until = next((one.since for one in on if one.since > held.since), None)
    by, note = editor_at(schedule, since)
    if until is None:
        by, note = schedule.paused_by or by, schedule.paused_note or note
        end = ", and fires again only when it is resumed" if question.time > question.now else ""
        text = f"It has been paused{' by ' + by if by else ''} since {question.say(since)}{end}"
    else:
        resumed_by, _ = editor_at(schedule, until)
        end = f", when {resumed_by} resumed it" if resumed_by else ""
        text = f"It was paused{' by ' + by if by else ''} from {question.span(since, until, 'until')}{end}"
    return f"{text}{': “' + note + '”' if note else ''}."


def what_held(question: Question) -> WhyAnswer | None:
    """How the schedule's definition prevented the fire; None: it did not."""
    schedule, held, time = question.schedule, question.held, question.time
    definition, plan, told = held.definition, held.plan, question.answer
    if held.since == schedule.created_at < time < kept_since(question):
        return forgotten(question)  # the revisions that followed may be pruned
    if time <= schedule.created_at and question.nominal is None:
        made = question.say(schedule.created_at)
        return told(Verdict.NOT_MADE, f"There was no such schedule yet: it was made at {made}.")
    if plan is None:
        return told(Verdict.BROKEN, f"Its rule could not be carried out: {held.problem}.")
    if plan.start and time < plan.start:
        return told(Verdict.NOT_STARTED, f"It was not to fire before {question.say(plan.start)}.")
    if plan.end and time >= plan.end:
        return told(Verdict.ENDED, f"It was not to fire from {question.say(plan.end)} on: that is its end.")
    if question.nominal is None:
        return None
    if retired := _why_retired(question):
        return told(Verdict.RETIRED, retired)
    if not definition.enabled:
        return told(Verdict.PAUSED, why_paused(question, time, time))
    if closure := plan.closed(question.nominal):
        facts = [("Closed until", question.say(closure.until))] if closure.until.year < 9999 else []
        return told(Verdict.CLOSED, _why_closed(closure.reason, closure.detail), *facts)
    return None


def _why_retired(question: Question) -> str:
    """A sentence for a schedule that had used up its fires before this time and was not armed again by an edit."""
    schedule, last = question.schedule, question.schedule.last_fire_at
    if last and question.time > last and schedule.rest in (Schedule.Rest.DONE, Schedule.Rest.USED_UP):
        if schedule.rest == Schedule.Rest.DONE:
            return f"It is a one-shot and had already fired at {question.say(last)}."
        return f"It had fired {schedule.max_fires} times, its limit: the last time at {question.say(last)}."
    # A one-shot that was armed again: what had been on before it was switched off fired once.
    on = [one for one in question.history if one.definition.enabled and one.since < question.time]
    if on and (plan := on[-1].plan) and plan.once:
        first = next(plan.fires(on[-1].since), None)
        if first and question.time > first:
            return f"It is a one-shot and had already fired at {question.say(first)}."
    return ""


def kept_since(question: Question) -> datetime:
    """The time since which all events, skips and revisions are kept."""
    keep: timedelta = settings.WAKEFUL_KEEP_EVENTS
    return question.now - keep


def forgotten(question: Question) -> WhyAnswer:
    keep = in_words(settings.WAKEFUL_KEEP_EVENTS)
    return question.answer(Verdict.FORGOTTEN, f"That is longer ago than events and skipped times are kept ({keep}).")
