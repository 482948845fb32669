"""Of a time that fired: when it did, how late that was and why, and what came of it."""

from dataclasses import replace
from datetime import datetime, timedelta

from agents.durations import in_words
from runs.models import Run
from runs.states import RunStatus
from triggers.models import Event
from triggers.schedules.explain.outages import silence_at
from triggers.schedules.explain.trail import Trail, event_between, trail_of
from triggers.schedules.explain.verdicts import Answer, Question, Verdict, answer
from triggers.schedules.firing.decide import GRACE


def what_fired(question: Question) -> Answer | None:
    """What came of its event; None: there is none."""
    event = event_between(question.schedule, question.start, question.end)
    return of_event(question, event) if event else None


def of_event(question: Question, event: Event) -> Answer:
    """What came of an event of the schedule."""
    trail = trail_of(question.schedule, event)
    verdict, came_of_it = _came_of(trail)
    late, reason = _lateness(question, trail)
    if trail.backfill:
        fired = f"It was backfilled by {trail.backfill.by}, and fired at {question.say(event.received_at)}"
    elif late > GRACE:
        fired = f"It fired late, at {question.say(event.received_at)}, {in_words(late)} after it was due"
    elif verdict == Verdict.RAN:
        fired = f"It did run: it fired at {question.say(event.received_at)}"
    else:
        fired = f"It fired at {question.say(event.received_at)}"
    text = f"{fired}{came_of_it}.{reason}"
    return answer(
        replace(question, nominal=trail.nominal), verdict, text, *_facts_of(question, trail, late),
        event_id=event.pk, run_id=trail.run.pk if trail.run else None, decision=trail.decision,
    )  # fmt: skip


def _came_of(trail: Trail) -> tuple[Verdict, str]:
    run, decision = trail.run, trail.decision
    if run:
        return Verdict.RAN, f", and its run {_state_of(run)}{_waited(trail.event, run)}"
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


def _waited(event: Event, run: Run) -> str:
    """How long it waited for a worker, where that is what somebody may wonder about."""
    waited = (run.started_at or event.received_at) - event.received_at
    return f" (it began {in_words(waited)} later)" if waited > GRACE else ""


def _lateness(question: Question, trail: Trail) -> tuple[timedelta, str]:
    """How long after it was due it fired, and why."""
    due = _due_of(question, trail)
    late = trail.event.received_at - due
    if late <= GRACE or trail.backfill:
        return late, ""
    return late, " " + why_late(question, due)


def _due_of(question: Question, trail: Trail) -> datetime:
    data = trail.event.data
    if isinstance(data, dict) and isinstance(due := data.get("due"), str):
        return datetime.fromisoformat(due)
    plan = question.period.plan
    return plan.due(trail.nominal) if plan else trail.nominal


def why_late(question: Question, due: datetime) -> str:
    """What kept Beat from firing it when it was due."""
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


def _facts_of(question: Question, trail: Trail, late: timedelta) -> list[tuple[str, str]]:
    event = trail.event
    facts = [
        ("Nominal time", question.say(trail.nominal)),
        ("Due", question.say(_due_of(question, trail))),
        ("Fired", question.say(event.received_at)),
        ("After it was due", in_words(max(late, timedelta()))),
    ]
    if trail.run:
        facts.append(("Run", f"{trail.run.pk}, {trail.run.status}"))
        if trail.run.started_at:
            facts.append(("Run began", question.say(trail.run.started_at)))
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
