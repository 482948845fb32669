"""Why did this not run at 09:00? One honest sentence about any instant of a schedule, with its evidence.

The evidence is heard in this order: the event of the nominal time, and what came of it; a Skip that covers it; what
decided at that instant when the schedule fires (its rows, or a Revision of them); how far Beat has come. A nominal time
is looked for from the instant on and before `width` later, so that "09:00" is the whole minute.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import islice, takewhile
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from django.conf import settings

from agents.durations import in_words
from runs.models import Run
from runs.sql import database_now
from runs.states import RunStatus
from triggers import local_time
from triggers.calendar import Cron, Interval, RuleError, just_before, zone_of
from triggers.local_time import say
from triggers.models import Decision, Event, Schedule, Skip
from triggers.outages import silence_at
from triggers.past import Period, change_at, periods_of, stretch_of
from triggers.plan import Plan
from triggers.trail import Trail, event_between, event_by_trigger, trail_of

MINUTE = timedelta(minutes=1)
IN_UTC = ZoneInfo("UTC")
ON_TIME = timedelta(seconds=30)  # later than this needs a reason; as in triggers.ticks
LOOKED_BACK = timedelta(days=5 * 366)  # for the nominal time before the one asked for


class Verdict(StrEnum):
    RAN = "ran"  # its event became a run
    NO_RUN = "no_run"  # its event became no run: a decision says why
    FIRED = "fired"  # there is an event, and nothing has come of it yet
    SENT = "sent"  # an ordinary task was handed to Celery
    SKIPPED = "skipped"  # a Skip says why
    NOT_MADE = "not_made"  # there was no such schedule yet
    NOT_STARTED = "not_started"  # before its start
    ENDED = "ended"  # after its end
    PAUSED = "paused"  # it was switched off
    RETIRED = "retired"  # it had fired as often as it was to
    CLOSED = "closed"  # outside its active hours, or on an excluded day
    BROKEN = "broken"  # its rule could not be carried out
    NOT_NAMED = "not_named"  # its rule does not name this time
    TWICE = "twice"  # the clocks showed it for the second time
    TO_COME = "to_come"  # it is not due yet
    LATE = "late"  # it is due and has not fired yet
    FORGOTTEN = "forgotten"  # longer ago than retention keeps
    UNKNOWN = "unknown"  # nothing is left that tells


@dataclass(frozen=True, kw_only=True)
class Answer:
    """`text` says it in a sentence or two, `facts` are labels with what they say; `nearest` are the nominal times before
    and after by the rule of that time; the ids and rows are where to look."""

    verdict: Verdict
    text: str
    at: datetime
    zone: str
    nominal: datetime | None = None
    facts: list[tuple[str, str]] = field(default_factory=list)
    nearest: tuple[datetime | None, datetime | None] = (None, None)
    event_id: UUID | None = None
    run_id: UUID | None = None
    decision: Decision | None = None
    skip: Skip | None = None


@dataclass(frozen=True, kw_only=True)
class _Question:
    schedule: Schedule
    start: datetime
    end: datetime
    zone: ZoneInfo
    note: str
    now: datetime
    periods: Sequence[Period]
    period: Period
    nominal: datetime | None

    def say(self, instant: datetime) -> str:
        return say(instant, self.zone)

    def span(self, start: datetime, end: datetime, to: str) -> str:
        """Both instants, with the zone said once."""
        return f"{say(start, self.zone, with_zone=False)} {to} {self.say(end)}"

    @property
    def time(self) -> datetime:
        return self.nominal or self.start


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
        _what_fired(question)
        or _what_was_skipped(question)
        or _what_came_twice(question)
        or _what_could_not_be(question)
        or _what_is_accounted_for(question)
        or _what_is_not_named(question)
        or _what_is_owed(question)
    )


def _ask(schedule: Schedule, at: datetime, width: timedelta, zone: ZoneInfo | None, now: datetime) -> _Question:
    periods = periods_of(schedule)
    zone = zone or _zone_at(periods, at)
    asked = local_time.read(at, zone)
    start, end = asked.instant, asked.instant + width
    owners = ((period, nominal) for period in periods if (nominal := period.owns(start, end)))
    holds = next((period for period in reversed(periods) if period.since < start), periods[0])
    period, nominal = next(owners, (holds, None))
    return _Question(
        schedule=schedule, start=start, end=end, zone=zone, note=asked.note, now=now,
        periods=periods, period=period, nominal=nominal,
    )  # fmt: skip


def _zone_at(periods: Sequence[Period], at: datetime) -> ZoneInfo:
    """The zone of the rule that held at a local time, each rule's own clock read."""
    for period in reversed(periods):
        zone = _zone_of(period)
        if period.since < local_time.read(at, zone).instant:
            return zone
    return _zone_of(periods[0])


def _zone_of(period: Period) -> ZoneInfo:
    """Of its crontab; else that of its active hours, or UTC."""
    try:
        own = "" if period.state.values.get("crontab") else period.state.values.get("active_zone")
        return zone_of(own) if own else period.state.zone
    except RuleError:
        return IN_UTC


# What fired


def _what_fired(question: _Question) -> Answer | None:
    event = event_between(question.schedule, question.start, question.end)
    return _of_event(question, event) if event else None


def _of_event(question: _Question, event: Event) -> Answer:
    trail = trail_of(question.schedule, event)
    verdict, came_of_it = _came_of(trail)
    late, reason = _lateness(question, trail)
    if trail.backfill:
        fired = f"It was backfilled by {trail.backfill.by}, and fired at {question.say(event.received_at)}"
    elif late > ON_TIME:
        fired = f"It fired late, at {question.say(event.received_at)}, {in_words(late)} after it was due"
    elif verdict == Verdict.RAN:
        fired = f"It did run: it fired at {question.say(event.received_at)}"
    else:
        fired = f"It fired at {question.say(event.received_at)}"
    text = f"{fired}{came_of_it}.{reason}"
    return _answer(
        replace(question, nominal=trail.nominal), verdict, text, *_facts_of(question, trail, late),
        event_id=event.pk, run_id=trail.run.pk if trail.run else None, decision=trail.decision,
    )  # fmt: skip


def _came_of(trail: Trail) -> tuple[Verdict, str]:
    run, decision = trail.run, trail.decision
    if run:
        return Verdict.RAN, f", and its run {_state_of(run)}"
    if decision:
        reason = decision.reason or decision.get_outcome_display()
        return Verdict.NO_RUN, f", but started no run ({decision.outcome}: {reason})"
    if trail.event.dispatched_at is None:
        return Verdict.FIRED, "; its event waits to be dispatched"
    return Verdict.FIRED, "; its trigger is gone, or what came of it is no longer kept"


def _state_of(run: Run) -> str:
    match run.status:
        case RunStatus.SUCCEEDED | RunStatus.FAILED:
            first_line = run.error.partition("\n")[0]
            return f"{run.status}{': ' + first_line if run.status == RunStatus.FAILED and first_line else ''}"
        case RunStatus.CANCELLED:
            return "was cancelled"
        case RunStatus.QUEUED:
            return f"is still queued{': ' + run.status_reason if run.status_reason else ''}"
        case RunStatus.UNCERTAIN:
            return "is uncertain: only a person can say how it goes on"
    return f"is {run.status}"


def _lateness(question: _Question, trail: Trail) -> tuple[timedelta, str]:
    """How long after it was due it fired, and why."""
    due = _due_of(question, trail)
    late = trail.event.received_at - due
    if late <= ON_TIME or trail.backfill:
        return late, ""
    return late, " " + _why_late(question, due)


def _due_of(question: _Question, trail: Trail) -> datetime:
    data = trail.event.data
    if isinstance(data, dict) and isinstance(due := data.get("due"), str):
        return datetime.fromisoformat(due)
    plan = question.period.plan
    return plan.due(trail.nominal) if plan else trail.nominal


def _why_late(question: _Question, due: datetime) -> str:
    silence = silence_at(due)
    if silence is None:
        return "A Beat was alive, but did not get to it in time (its log says more)."
    if silence.since and silence.until:
        return f"No Beat was alive from {question.span(silence.since, silence.until, 'until')}."
    if silence.since:
        return f"No Beat has been alive since {question.say(silence.since)}."
    if silence.until:
        return f"No Beat is known to have been alive before {question.say(silence.until)}."
    return "No Beat is known to have been alive."


def _facts_of(question: _Question, trail: Trail, late: timedelta) -> list[tuple[str, str]]:
    event = trail.event
    facts = [
        ("Nominal time", question.say(trail.nominal)),
        ("Due", question.say(_due_of(question, trail))),
        ("Fired", question.say(event.received_at)),
        ("After it was due", in_words(max(late, timedelta()))),
    ]
    if trail.run:
        facts.append(("Run", f"{trail.run.pk}, {trail.run.status}"))
    if trail.decision:
        facts.append(
            ("Decision", f"{trail.decision.outcome}: {trail.decision.reason or trail.decision.get_outcome_display()}")
        )
    facts += [("Replayed", f"by {one.by}, {question.say(one.created_at)}") for one in trail.replays]
    for tick in trail.backfills:
        whole = tick.backfill
        extent = question.span(whole.start, whole.end, "to")
        facts.append(("Backfill", f"by {whole.by}, of {extent}: {tick.get_outcome_display()}"))
    return facts


# What was skipped


def _what_was_skipped(question: _Question) -> Answer | None:
    skip = Skip.objects.filter(schedule=question.schedule.pk, last__gte=question.start).order_by("last").first()
    if skip is None or skip.first >= question.end:
        return None
    nominal = question.nominal or _on_its_grid(question, skip)
    if nominal is None or not skip.first <= nominal <= skip.last:
        return None
    question = replace(question, nominal=nominal)
    facts = [("Skipped", _extent(question, skip)), ("Decided", question.say(skip.created_at))]
    return _answer(question, Verdict.SKIPPED, _why_skipped(question, skip), *facts, skip=skip)


def _on_its_grid(question: _Question, skip: Skip) -> datetime | None:
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


def _extent(question: _Question, skip: Skip) -> str:
    if skip.first == skip.last:
        return f"{skip.reason}: this time alone"
    count = f"{skip.count} times" if skip.count else "many times"
    return f"{skip.reason}: {count}, from {question.span(skip.first, skip.last, 'to')}"


def _why_skipped(question: _Question, skip: Skip) -> str:
    state, said = question.period.state, f": {skip.detail}" if skip.detail else ""
    match skip.reason:
        case Skip.Reason.MISSED:
            policy = {
                Schedule.CatchUp.LATEST: "fires only the newest of the missed times",
                Schedule.CatchUp.SKIP: "fires none of the missed times",
                Schedule.CatchUp.ALL: "fires every missed time",
            }.get(Schedule.CatchUp(state.catch_up), "")
            return f"It was missed, and its catch-up policy “{state.catch_up}” {policy}. {_why_late(question, question.time)}"
        case Skip.Reason.WINDOW:
            window = f" of {in_words(state.catch_up_window)}" if state.catch_up_window else ""
            return f"It was missed longer ago than its catch-up window{window} when Beat came back. {_why_late(question, question.time)}"
        case Skip.Reason.MOST:
            most = f" {state.catch_up_max}" if state.catch_up_max else " so many"
            return f"It was missed, and of the missed times it catches up at most{most}, the newest. {_why_late(question, question.time)}"
        case Skip.Reason.INACTIVE | Skip.Reason.EXCLUDED:
            return _why_closed(skip.reason, skip.detail)
        case Skip.Reason.PAUSED:
            return _why_paused(question, skip)
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


def _why_paused(question: _Question, skip: Skip | None = None) -> str:
    schedule, period = question.schedule, question.period
    if period.state.enabled:
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


# What the clocks did


def _what_came_twice(question: _Question) -> Answer | None:
    plan = question.period.plan
    first = local_time.shown_before(question.start, question.zone)
    if question.nominal or first is None or plan is None or not isinstance(plan.rule, Cron):
        return None
    named = question.period.named(first, first + (question.end - question.start))
    if named is None:
        return None
    before = why(question.schedule, first, question.end - question.start, zone=question.zone, now=question.now)
    clock = local_time.clock(question.start, question.zone)
    text = f"{clock} came twice that night, and it fires the first time, at {local_time.clock(named, IN_UTC)} UTC. {before.text}"
    return replace(before, verdict=Verdict.TWICE, text=text, at=question.start)


# What held then


def _what_could_not_be(question: _Question) -> Answer | None:
    schedule, period, time = question.schedule, question.period, question.time
    state = period.state
    if _forgets(question, period):
        return _forgotten(question)
    if time <= schedule.created_at and question.nominal is None:
        return _answer(
            question,
            Verdict.NOT_MADE,
            f"There was no such schedule yet: it was made at {question.say(schedule.created_at)}.",
        )
    if period.plan is None:
        text = f"Its rule could not be carried out: {period.problem}."
        return _answer(question, Verdict.BROKEN, text)
    if state.start and time < state.start:
        return _answer(question, Verdict.NOT_STARTED, f"It was not to fire before {question.say(state.start)}.")
    if state.end and time >= state.end:
        return _answer(
            question, Verdict.ENDED, f"It was not to fire from {question.say(state.end)} on: that is its end."
        )
    if question.nominal is None:
        return None
    if retired := _why_retired(question):
        return _answer(question, Verdict.RETIRED, retired)
    if not state.enabled:
        return _answer(question, Verdict.PAUSED, _why_paused(question))
    if closure := period.plan.closed(question.nominal):
        facts = [("Closed until", question.say(closure.until))] if closure.until.year < 9999 else []
        return _answer(question, Verdict.CLOSED, _why_closed(closure.reason, closure.detail), *facts)
    return None


def _why_retired(question: _Question) -> str:
    """In words, if it had fired by then as often as it was to, and an edit since has not armed it again."""
    schedule, last = question.schedule, question.schedule.last_fire_at
    if last and question.time > last and schedule.rest in (Schedule.Rest.DONE, Schedule.Rest.USED_UP):
        often = "once" if schedule.rest == Schedule.Rest.DONE else f"{schedule.max_fires} times"
        return f"It was to fire {often}, and had: the last time at {question.say(last)}."
    # A one-shot that was armed again: what had been on before it was switched off fired once.
    on = [period for period in question.periods if period.state.enabled and period.since < question.time]
    if on and (plan := on[-1].plan) and plan.once:
        first = next(plan.fires(on[-1].since), None)
        if first and question.time > first:
            return f"It was to fire once, and had: at {question.say(first)}."
    return ""


def _forgets(question: _Question, period: Period) -> bool:
    """Are the edits that followed pruned, so that nobody can tell what held?"""
    return period.since == question.schedule.created_at < question.time and question.time < _kept_since(question)


def _kept_since(question: _Question) -> datetime:
    keep: timedelta = settings.WAKEFUL_KEEP_EVENTS
    return question.now - keep


def _forgotten(question: _Question) -> Answer:
    keep = in_words(settings.WAKEFUL_KEEP_EVENTS)
    return _answer(question, Verdict.FORGOTTEN, f"That is longer ago than events and skipped times are kept ({keep}).")


# How far Beat has come


def _what_is_accounted_for(question: _Question) -> Answer | None:
    schedule, nominal = question.schedule, question.nominal
    if nominal is None or schedule.accounted_until is None or nominal > schedule.accounted_until:
        return None
    if nominal < _kept_since(question):
        return _forgotten(question)
    if schedule.trigger_id is None:
        text = "It was handed to Celery as an ordinary task; what became of it is among Celery's results."
        return _answer(question, Verdict.SENT, text)
    if event := event_by_trigger(schedule, question.start, question.end):
        return _of_event(question, event)
    return _answer(question, Verdict.UNKNOWN, "Beat accounted for it, but its event is gone: somebody deleted it.")


def _what_is_not_named(question: _Question) -> Answer | None:
    if question.nominal is not None:
        return None
    state = question.period.state
    text = f"Its rule does not name this time: {state.describe()}."
    before, after = _nearest(question)
    if before and after:
        text += f" It names {question.span(before, after, 'before it, and')} after it."
    elif near := before or after:
        text += f" The only one near it is {question.say(near)}."
    else:
        text += " It names no time near it."
    if expectation := _expectation(question):
        text += f" {expectation}"
    if not state.enabled:
        text += f" {_why_retired(question) or _why_paused(question)}"
    return _answer(question, Verdict.NOT_NAMED, text)


def _expectation(question: _Question) -> str:
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


def _told_apart(question: _Question, period: Period, verb: str) -> str:
    """How its rule differs from the one that held at the time asked for."""
    words, rule = period.state.describe(), period.plan.rule if period.plan else None
    if words == question.period.state.describe() and isinstance(rule, Interval) and rule.anchor:
        return f"its interval {verb} counted from {question.say(rule.anchor)}"
    return f"its rule {verb} “{words}”"


def _would_name(question: _Question, period: Period) -> bool:
    clock = question.start.astimezone(question.zone).replace(tzinfo=None)
    width = question.end - question.start
    starts = (question.start, local_time.read(clock, _zone_of(period)).instant)
    return any(period.named(start, start + width) for start in starts)


def _by(question: _Question, edit: datetime) -> str:
    change = change_at(question.schedule, edit)
    return f", changed by {change.by}" if change else ""


def _what_is_owed(question: _Question) -> Answer:
    schedule, plan, nominal = question.schedule, question.period.plan, question.nominal
    if plan is None or nominal is None:
        return _answer(question, Verdict.UNKNOWN, "Nothing is left that tells what was to happen then.")
    due = plan.due(nominal)
    if schedule.problem:
        return _answer(question, Verdict.BROKEN, f"It cannot fire until it is edited: {schedule.problem}.")
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
    return _answer(question, Verdict.LATE, text, ("Due", question.say(due)))


def _to_come(question: _Question, due: datetime) -> Answer:
    schedule, nominal = question.schedule, question.time
    if (left := _fires_left(question)) is not None and nominal not in left:
        last = f" The last one is {question.say(left[-1])}." if left else ""
        text = f"It will have fired as often as it is to by then, and retire.{last}"
        return _answer(question, Verdict.RETIRED, text)
    moved = f" (jitter and spread move it by {in_words(due - nominal)})" if due > nominal else ""
    text = f"It is still to come: it fires at {question.say(due)}{moved}."
    if schedule.trigger and schedule.trigger.status != "active":
        kept = "its event will be held" if schedule.trigger.status == "paused" else "its event will come to nothing"
        text += f" Its trigger {schedule.trigger.slug} is {schedule.trigger.status} now: {kept}."
    if silence_at(question.now):
        text += " No Beat is alive now."
    return _answer(question, Verdict.TO_COME, text, ("Due", question.say(due)))


def _fires_left(question: _Question) -> list[datetime] | None:
    """Its last nominal times, where it retires after some; else None."""
    schedule, plan, state = question.schedule, question.period.plan, question.period.state
    if plan is None or (state.max_fires is None and not plan.once):
        return None
    after = schedule.accounted_until or just_before(schedule.created_at)
    left = 1 if plan.once else max(0, (state.max_fires or 0) - schedule.fires)
    return list(islice(plan.fires(after), left))


# The answer


def _answer(question: _Question, verdict: Verdict, text: str, *facts: tuple[str, str], **links: Any) -> Answer:
    state = question.period.state
    before, after = _nearest(question)
    shown = [("Asked", question.say(question.start)), ("Rule then", state.describe()), *facts]
    if before:
        shown.append(("Nominal time before", question.say(before)))
    if after:
        shown.append(("Nominal time after", question.say(after)))
    return Answer(
        verdict=verdict,
        text=f"{question.note} {text}".strip(),
        at=question.start,
        zone=str(question.zone),
        nominal=question.nominal,
        facts=shown,
        nearest=(before, after),
        **links,
    )


def _nearest(question: _Question) -> tuple[datetime | None, datetime | None]:
    plan = question.period.plan
    if plan is None:
        return None, None
    return _before(plan, question.time), next(plan.raw(question.time), None)


def _before(plan: Plan, time: datetime) -> datetime | None:
    span = MINUTE
    while span < LOOKED_BACK:
        if found := list(takewhile(lambda nominal: nominal < time, plan.raw(time - span))):
            return found[-1]
        span *= 4
    return None
