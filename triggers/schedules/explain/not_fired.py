"""Of a time that did not fire: the skip that covers it, or what held then and kept it from firing."""

from dataclasses import replace
from datetime import datetime, timedelta

from django.conf import settings

from agents.durations import in_words
from triggers.models import Schedule, Skip
from triggers.schedules.explain.fired import why_late
from triggers.schedules.explain.periods import change_at, stretch_of
from triggers.schedules.explain.verdicts import Answer, Question, Verdict, answer
from triggers.schedules.plans import Period
from triggers.schedules.rules.interval import Interval

CAUGHT_UP = {
    "latest": "its catch-up policy “latest” fires only the newest of the missed times",
    "skip": "its catch-up policy “skip” fires none of the missed times",
    "all": "it ended, or was used up, before it could be caught up",
}


def what_was_skipped(question: Question) -> Answer | None:
    """The skip that covers it; None: there is none."""
    skip = Skip.objects.filter(schedule=question.schedule.pk, last__gte=question.start).order_by("last").first()
    if skip is None or skip.first >= question.end:
        return None
    nominal = question.nominal or _on_its_grid(question, skip)
    if nominal is None or not skip.first <= nominal <= skip.last:
        return None
    question = replace(question, nominal=nominal)
    facts = [("Skipped", _extent(question, skip)), ("Decided", question.say(skip.created_at))]
    return answer(question, Verdict.SKIPPED, _why_skipped(question, skip), *facts, skip=skip)


def _on_its_grid(question: Question, skip: Skip) -> datetime | None:
    """The nominal time that is asked for among those of a skip, whatever the rule names now: its first and last are some
    in any case, and those of an interval lie between, also where its grid has moved since."""
    for end in (skip.first, skip.last):
        if question.start <= end < question.end:
            return end
    rule = question.period.plan.rule if question.period.plan else None
    if not isinstance(rule, Interval) or question.start < skip.first:
        return None
    nominal = skip.first - (skip.first - question.start) // rule.every * rule.every
    return nominal if nominal < question.end else None


def _extent(question: Question, skip: Skip) -> str:
    if skip.first == skip.last:
        return f"{skip.reason}: this time alone"
    count = f"{skip.count} times" if skip.count else "many times"
    return f"{skip.reason}: {count}, from {question.span(skip.first, skip.last, 'to')}"


def _why_skipped(question: Question, skip: Skip) -> str:
    state, said = question.period.definition, f": {skip.detail}" if skip.detail else ""
    match skip.reason:
        case Skip.Reason.MISSED:
            return f"It was missed, and {CAUGHT_UP[state.catch_up]}. {why_late(question, question.time)}"
        case Skip.Reason.WINDOW:
            window = f" of {in_words(state.catch_up_window)}" if state.catch_up_window else ""
            return f"It was missed longer ago than its catch-up window{window} when Beat came back. {why_late(question, question.time)}"
        case Skip.Reason.MOST:
            most = f" {state.catch_up_max}" if state.catch_up_max else " so many"
            return f"It was missed, and of the missed times it catches up at most{most}, the newest. {why_late(question, question.time)}"
        case Skip.Reason.INACTIVE | Skip.Reason.EXCLUDED:
            return _why_closed(skip.reason, skip.detail)
        case Skip.Reason.PAUSED:
            return why_paused(question, skip)
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


def why_paused(question: Question, skip: Skip | None = None) -> str:
    """Since when it was switched off, until when, by whom, with which note."""
    schedule, period = question.schedule, question.period
    if period.definition.enabled:
        first, last = (skip.first, skip.last) if skip else (question.time, question.time)
        return f"It was switched off then, at least from {question.span(first, last, 'to')}."
    since, until = stretch_of(question.periods, period)
    change = change_at(schedule, since)
    by, note = (change.by, change.note) if change else ("", "")
    if until is None:
        by, note = schedule.paused_by or by, schedule.paused_note or note
        text = f"It has been paused{' by ' + by if by else ''} since {question.say(since)}"
        text += ", and fires again only when it is resumed" * (question.time > question.now)
    else:
        resumed = change_at(schedule, until)
        text = f"It was paused{' by ' + by if by else ''} from {question.span(since, until, 'until')}"
        text += f", when {resumed.by} resumed it" if resumed else ""
    return f"{text}{': “' + note + '”' if note else ''}."


# What held then


def what_could_not_be(question: Question) -> Answer | None:
    """What of its state at that time kept it from firing; None: nothing did."""
    schedule, period, time = question.schedule, question.period, question.time
    state = period.definition
    if _forgets(question, period):
        return forgotten(question)
    if time <= schedule.created_at and question.nominal is None:
        return answer(
            question,
            Verdict.NOT_MADE,
            f"There was no such schedule yet: it was made at {question.say(schedule.created_at)}.",
        )
    if period.plan is None:
        text = f"Its rule could not be carried out: {period.problem}."
        return answer(question, Verdict.BROKEN, text)
    if state.start and time < state.start:
        return answer(question, Verdict.NOT_STARTED, f"It was not to fire before {question.say(state.start)}.")
    if state.end and time >= state.end:
        return answer(
            question, Verdict.ENDED, f"It was not to fire from {question.say(state.end)} on: that is its end."
        )
    if question.nominal is None:
        return None
    if retired := why_retired(question):
        return answer(question, Verdict.RETIRED, retired)
    if not state.enabled:
        return answer(question, Verdict.PAUSED, why_paused(question))
    if closure := period.plan.closed(question.nominal):
        facts = [("Closed until", question.say(closure.until))] if closure.until.year < 9999 else []
        return answer(question, Verdict.CLOSED, _why_closed(closure.reason, closure.detail), *facts)
    return None


def why_retired(question: Question) -> str:
    """In words, if it had fired by then as often as it was to, and an edit since has not armed it again."""
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


def _forgets(question: Question, period: Period) -> bool:
    """Are the edits that followed pruned, so that nobody can tell what held?"""
    return period.since == question.schedule.created_at < question.time and question.time < kept_since(question)


def kept_since(question: Question) -> datetime:
    """From when on events, skips and revisions are all there."""
    keep: timedelta = settings.WAKEFUL_KEEP_EVENTS
    return question.now - keep


def forgotten(question: Question) -> Answer:
    """Nobody can tell any more."""
    keep = in_words(settings.WAKEFUL_KEEP_EVENTS)
    return answer(question, Verdict.FORGOTTEN, f"That is longer ago than events and skipped times are kept ({keep}).")
