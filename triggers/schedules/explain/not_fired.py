"""Why it did not fire: the skip that covers the time, or what its definition said then."""

from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings

from agents.durations import in_words
from triggers.models import Schedule, Skip
from triggers.schedules.explain.edits import change_at, switched_off
from triggers.schedules.explain.fired import why_late
from triggers.schedules.explain.verdicts import Answer, Question, Verdict
from triggers.schedules.rules.interval import Interval

CAUGHT_UP = {
    "latest": "its catch-up policy “latest” fires only the newest of the missed times",
    "skip": "its catch-up policy “skip” fires none of the missed times",
    "all": "it ended, or was used up, before it could be caught up",
}


def what_was_skipped(question: Question) -> Answer | None:
    """None: no skip covers it."""
    skip = Skip.objects.filter(schedule=question.schedule.pk, last__gte=question.start).order_by("last").first()
    if skip is None or skip.first >= question.end:
        return None
    nominal = question.nominal or _in_skip(question, skip)
    if nominal is None or not skip.first <= nominal <= skip.last:
        return None
    question = replace(question, nominal=nominal)
    extent = "this time alone"
    if skip.first != skip.last:
        extent = f"{skip.count or 'many'} times, from {question.span(skip.first, skip.last, 'to')}"
    facts = [("Skipped", f"{skip.reason}: {extent}"), ("Decided", question.say(skip.created_at))]
    return question.answer(Verdict.SKIPPED, _why_skipped(question, skip), *facts, skip=skip)


def _in_skip(question: Question, skip: Skip) -> datetime | None:
    """The nominal time of a skip in the stretch of the question, also if the rule does not name it now: the first, the last,
    or, of an interval whose grid has moved since, one between."""
    rule = question.period.plan.rule if question.period.plan else None
    times = [skip.first, skip.last]
    if isinstance(rule, Interval) and question.start > skip.first:
        times.append(skip.first - (skip.first - question.start) // rule.every * rule.every)
    return next((nominal for nominal in times if question.start <= nominal < question.end), None)


def _why_skipped(question: Question, skip: Skip) -> str:
    definition, said = question.period.definition, f": {skip.detail}" if skip.detail else ""
    match skip.reason:
        case Skip.Reason.MISSED:
            return f"It was missed, and {CAUGHT_UP[definition.catch_up]}. {why_late(question, question.time)}"
        case Skip.Reason.WINDOW:
            window = f" of {in_words(definition.catch_up_window)}" if definition.catch_up_window else ""
            missed = f"It was missed longer ago than its catch-up window{window} when Beat came back."
            return f"{missed} {why_late(question, question.time)}"
        case Skip.Reason.MOST:
            most = f" {definition.catch_up_max}" if definition.catch_up_max else " so many"
            missed = f"It was missed, and of the missed times it catches up at most{most}, the newest."
            return f"{missed} {why_late(question, question.time)}"
        case Skip.Reason.INACTIVE | Skip.Reason.EXCLUDED:
            return _why_closed(skip.reason, skip.detail)
        case Skip.Reason.PAUSED:
            return why_paused(question, skip.first, skip.last)
        case Skip.Reason.PACED:
            return f"Its agent had set another pace for this heartbeat{said}."
        case Skip.Reason.ELSEWHERE:
            return f"Another scheduler (django-celery-beat's own) ran meanwhile, and had fired it{said}."
        case Skip.Reason.REFUSED:
            return f"It could not be fired{said or ': its rows were refused'}."
    return f"It was skipped: {skip.get_reason_display()}{said}."


def _why_closed(reason: str, detail: str) -> str:
    if reason == Skip.Reason.EXCLUDED:
        return f"That day is excluded: {detail}." if detail else "That day is excluded by a calendar."
    return f"That is outside its active hours ({detail})." if detail else "That is outside its active hours."


def why_paused(question: Question, first: datetime, last: datetime) -> str:
    """Since when it was switched off, until when, by whom, with which note."""
    schedule = question.schedule
    if question.period.definition.enabled:
        return f"It was switched off then, at least from {question.span(first, last, 'to')}."
    since, until = switched_off(question.periods, question.period)
    change = change_at(schedule, since)
    by, note = (change.by, change.note) if change else ("", "")
    if until is None:
        by, note = schedule.paused_by or by, schedule.paused_note or note
        end = ", and fires again only when it is resumed" if question.time > question.now else ""
        text = f"It has been paused{' by ' + by if by else ''} since {question.say(since)}{end}"
    else:
        resumed = change_at(schedule, until)
        end = f", when {resumed.by} resumed it" if resumed else ""
        text = f"It was paused{' by ' + by if by else ''} from {question.span(since, until, 'until')}{end}"
    return f"{text}{': “' + note + '”' if note else ''}."


def what_held(question: Question) -> Answer | None:
    """What of its definition kept it from firing; None: nothing did."""
    schedule, period, time = question.schedule, question.period, question.time
    definition, told = period.definition, question.answer
    if period.since == schedule.created_at < time < kept_since(question):
        return forgotten(question)  # the revisions that followed may be pruned
    if time <= schedule.created_at and question.nominal is None:
        made = question.say(schedule.created_at)
        return told(Verdict.NOT_MADE, f"There was no such schedule yet: it was made at {made}.")
    if period.plan is None:
        return told(Verdict.BROKEN, f"Its rule could not be carried out: {period.problem}.")
    if definition.start and time < definition.start:
        return told(Verdict.NOT_STARTED, f"It was not to fire before {question.say(definition.start)}.")
    if definition.end and time >= definition.end:
        return told(Verdict.ENDED, f"It was not to fire from {question.say(definition.end)} on: that is its end.")
    if question.nominal is None:
        return None
    if retired := why_retired(question):
        return told(Verdict.RETIRED, retired)
    if not definition.enabled:
        return told(Verdict.PAUSED, why_paused(question, time, time))
    if closure := period.plan.closed(question.nominal):
        facts = [("Closed until", question.say(closure.until))] if closure.until.year < 9999 else []
        return told(Verdict.CLOSED, _why_closed(closure.reason, closure.detail), *facts)
    return None


def why_retired(question: Question) -> str:
    """In words, if it had fired by then as often as it may, and no edit since has armed it again."""
    schedule, last = question.schedule, question.schedule.last_fire_at
    if last and question.time > last and schedule.rest in (Schedule.Rest.DONE, Schedule.Rest.USED_UP):
        often = "once" if schedule.rest == Schedule.Rest.DONE else f"{schedule.max_fires} times"
        return f"It was to fire {often}, and had: the last time at {question.say(last)}."
    # A one-shot that was armed again: what had been on before it was switched off fired once.
    on = [period for period in question.periods if period.definition.enabled and period.since < question.time]
    if on and (plan := on[-1].plan) and plan.once:
        first = next(plan.fires(on[-1].since), None)
        if first and question.time > first:
            return f"It was to fire once, and had: at {question.say(first)}."
    return ""


def kept_since(question: Question) -> datetime:
    """From when on events, skips and revisions are all there."""
    keep: timedelta = settings.WAKEFUL_KEEP_EVENTS
    return question.now - keep


def forgotten(question: Question) -> Answer:
    keep = in_words(settings.WAKEFUL_KEEP_EVENTS)
    return question.answer(Verdict.FORGOTTEN, f"That is longer ago than events and skipped times are kept ({keep}).")
