"""Why it fired late, and what its event started."""

from dataclasses import replace
from datetime import datetime, timedelta

from agents.durations import in_words
from runs.models import Run
from runs.states import RunStatus
from triggers.models import Event
from triggers.schedules.explain.outages import silence_at
from triggers.schedules.explain.trail import Trail, event_between, trail_of
from triggers.schedules.explain.verdicts import Answer, Question, Verdict
from triggers.schedules.firing.decide import GRACE


def what_fired(question: Question) -> Answer | None:
    """None: there is no event."""
    event = event_between(question.schedule, question.start, question.end)
    if event is None:
        return None
    trail = trail_of(question.schedule, event)
    verdict, outcome = _outcome(trail)
    due = _due_of(question, trail)
    late, reason, fired_at = event.received_at - due, "", question.say(event.received_at)
    if trail.backfill:
        fired = f"It was backfilled by {trail.backfill.by}, and fired at {fired_at}"
    elif late > GRACE:
        fired, reason = (
            f"It fired late, at {fired_at}, {in_words(late)} after it was due",
            f" {why_late(question, due)}",
        )
    else:
        fired = f"{'It did run: it fired' if verdict == Verdict.RAN else 'It fired'} at {fired_at}"
    facts = [
        ("Nominal time", question.say(trail.nominal)), ("Due", question.say(due)), ("Fired", fired_at),
        ("After it was due", in_words(max(late, timedelta()))), *_evidence(question, trail),
    ]  # fmt: skip
    return replace(question, nominal=trail.nominal).answer(
        verdict, f"{fired}{outcome}.{reason}", *facts,
        event_id=event.pk, run_id=trail.run.pk if trail.run else None, decision=trail.decision,
    )  # fmt: skip


def _outcome(trail: Trail) -> tuple[Verdict, str]:
    if run := trail.run:
        return Verdict.RAN, f", and its run {_state_of(run)}{_waited(trail.event, run)}"
    if trail.decision:
        return Verdict.NO_RUN, f", but started no run ({trail.reason})"
    if trail.event.dispatched_at is None:
        return Verdict.FIRED, "; its event waits to be dispatched"
    return Verdict.FIRED, "; its trigger is gone, or its outcome is no longer kept"


def _state_of(run: Run) -> str:
    first_line = run.error.partition("\n")[0]
    match run.status:
        case RunStatus.SUCCEEDED:
            return "succeeded"
        case RunStatus.FAILED:
            return f"failed{': ' + first_line if first_line else ''}"
        case RunStatus.CANCELLED:
            return "was cancelled"
        case RunStatus.QUEUED:
            return f"is still queued{': ' + run.status_reason if run.status_reason else ''}"
        case RunStatus.UNCERTAIN:
            return "is uncertain: a person has to decide how it goes on"
    return f"is {run.status}"


def _waited(event: Event, run: Run) -> str:
    waited = (run.started_at or event.received_at) - event.received_at
    return f" (it began {in_words(waited)} later)" if waited > GRACE else ""


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


def _evidence(question: Question, trail: Trail) -> list[tuple[str, str]]:
    facts = [("Run", f"{trail.run.pk}, {trail.run.status}")] if trail.run else []
    if trail.run and trail.run.started_at:
        facts.append(("Run began", question.say(trail.run.started_at)))
    if trail.decision:
        facts.append(("Decision", trail.reason))
    facts += [("Replayed", f"by {one.by}, {question.say(one.created_at)}") for one in trail.replays]
    for tick in trail.backfills:
        extent = question.span(tick.backfill.start, tick.backfill.end, "to")
        facts.append(("Backfill", f"by {tick.backfill.by}, of {extent}: {tick.get_outcome_display()}"))
    return facts
