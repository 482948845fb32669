"""Why it fired late, and what its event started."""

from dataclasses import replace
from datetime import datetime, timedelta

from agents.kernel.durations import in_words
from runs.models import Run
from runs.states import RunStatus
from triggers.schedules.explain.evidence import silence_at
from triggers.schedules.explain.trail import Trail, event_between, trail_of
from triggers.schedules.explain.verdicts import Question, Verdict, WhyAnswer
from triggers.schedules.firing.catch_up import GRACE

ENDED = {
    RunStatus.SUCCEEDED: "succeeded",
    RunStatus.FAILED: "failed",
    RunStatus.CANCELLED: "was cancelled",
    RunStatus.QUEUED: "is still queued",
    RunStatus.UNCERTAIN: "is uncertain: a person has to decide how it goes on",
}


def what_fired(question: Question) -> WhyAnswer | None:
    """None: there is no event."""
    event = event_between(question.schedule, question.start, question.end)
    if event is None:
        return None
    trail = trail_of(question.schedule, event)
    verdict, outcome = _outcome(trail)
    due, fired_at = _due_of(question, trail), question.say(event.received_at)
    late = max(event.received_at - due, timedelta())
    text = f"{'It did run: it fired' if verdict == Verdict.RAN else 'It fired'} at {fired_at}{outcome}."
    if trail.backfill:
        text = f"It was backfilled by {trail.backfill.by}, and fired at {fired_at}{outcome}."
    elif late > GRACE:
        text = f"It fired late, at {fired_at}, {in_words(late)} after it was due{outcome}. {why_late(question, due)}"
    facts = [("Nominal time", question.say(trail.nominal)), ("Due", question.say(due)), ("Fired", fired_at)]
    return replace(question, nominal=trail.nominal).answer(
        verdict, text, *facts, ("After it was due", in_words(late)), *_evidence(question, trail),
        event_id=event.pk, run_id=trail.run.pk if trail.run else None, decision=trail.decision,
    )  # fmt: skip


def _outcome(trail: Trail) -> tuple[Verdict, str]:
    if run := trail.run:
        waited = (run.started_at or trail.event.received_at) - trail.event.received_at
        began = f" (it began {in_words(waited)} later)" if waited > GRACE else ""
        return Verdict.RAN, f", and its run {_state_of(run)}{began}"
    if trail.decision:
        return Verdict.NO_RUN, f", but started no run ({trail.reason})"
    if trail.event.dispatched_at is None:
        return Verdict.FIRED, "; its event waits to be dispatched"
    return Verdict.FIRED, "; its trigger is gone, or its outcome is no longer kept"


def _state_of(run: Run) -> str:
    reasons = {RunStatus.FAILED: run.error.partition("\n")[0], RunStatus.QUEUED: run.status_reason}
    status = RunStatus(run.status)
    return ": ".join(filter(None, [ENDED.get(status, f"is {status}"), reasons.get(status)]))


def _due_of(question: Question, trail: Trail) -> datetime:
    data = trail.event.data
    if isinstance(data, dict) and isinstance(due := data.get("due"), str):
        return datetime.fromisoformat(due)
    plan = question.held.plan
    return plan.due(trail.nominal) if plan else trail.nominal


def why_late(question: Question, due: datetime) -> str:
    """Why Beat did not fire it when it was due."""
    silence = silence_at(due)
    if silence is None:
        return "A Beat was alive, but did not get to it in time (its log has details)."
    if silence.since and silence.until:
        return f"No Beat was alive from {question.span(silence.since, silence.until, 'until')}."
    if silence.since:
        return f"No Beat has been alive since {question.say(silence.since)}."
    before = f" before {question.say(silence.until)}" if silence.until else ""
    return f"No Beat is known to have been alive{before}."


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
