"""Resolve an uncertain run: say whether its at_most_once step has happened."""

import json
from typing import Any, Literal, get_args
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import Run, Step, audit
from runs.states import RunStatus
from runs.transitions.leave import take_away
from runs.transitions.lock import lock_run
from runs.transitions.outcome import Outcome, back_in_line, ticket_of

UncertainOutcome = Literal["happened", "did_not_happen", "fail"]


@not_in_atomic_body
def resolve(run_id: UUID, *, outcome: UncertainOutcome, by: str, result: Any = None, epoch: int | None = None) -> Run:
    """Resolve the first step with an unknown outcome: it happened, and `result` is its output; it did not happen, and is done
    now; or the run fails. "did_not_happen" also retries a run that is parked because its journal does not fit its agent, for
    example after another deploy. `epoch`: that of the run when its question was shown; it rises before it has another one.

    Raises Run.DoesNotExist, ValueError for an invalid answer, and IllegalState if the run is not uncertain.
    """
    _check(outcome, result)
    with transaction.atomic():
        run = lock_run(run_id)
        if run.status != RunStatus.UNCERTAIN:
            raise IllegalState(f"run {run_id} is {run.status}; only an uncertain run can be resolved", run.status)
        if epoch is not None and epoch != run.epoch:
            raise IllegalState(f"run {run_id} has another question than the one shown", run.status)
        step = run.steps.filter(status=Step.Status.STARTED).order_by("position").first()
        if outcome == "happened" and step is None:
            raise IllegalState(
                f"run {run_id} is not uncertain about a step: its journal does not fit its agent. Retry it "
                "(did_not_happen), fork it, or let it fail",
                run.status,
            )
        if step is not None:
            _settle(step, outcome, result)
        # A person's answer counts as progress: attempts start from 0.
        Run.objects.filter(pk=run_id).update(attempt=0)
        if not take_away(ticket_of(run), _outcome(run, outcome, by), expected=RunStatus.UNCERTAIN):
            raise IllegalState(f"run {run_id} is no longer uncertain", run.status)
        audit.record(by, "resolve", run, outcome=outcome, **(audit.entry(step.key, step.position) if step else {}))
        failpoint("before_resolve_commit")
    run.refresh_from_db()
    return run


def _check(outcome: str, result: Any) -> None:
    if outcome not in get_args(UncertainOutcome):
        raise ValueError(f"outcome is one of {', '.join(get_args(UncertainOutcome))}, not {outcome!r}")
    if result is not None and outcome != "happened":
        raise ValueError('a result is only allowed with outcome "happened"')
    if len(json.dumps(result, ensure_ascii=False).encode()) > settings.WAKEFUL_MAX_OUTPUT:
        raise ValueError(f"the result is larger than WAKEFUL_MAX_OUTPUT, {settings.WAKEFUL_MAX_OUTPUT} bytes")


def _settle(step: Step, outcome: UncertainOutcome, result: Any) -> None:
    """Record the answer. If the run fails, its step keeps an unknown outcome, and a requeue parks the run again."""
    unproved = Step.objects.filter(run_id=step.run_id, key=step.key, status=Step.Status.STARTED)
    if outcome == "happened":
        unproved.update(status=Step.Status.DONE, output=_output(step, result), ended_at=Now())
    elif outcome == "did_not_happen":
        unproved.delete()


def _output(step: Step, result: Any) -> Any:
    """The result as a replay reads it."""
    match step.kind:
        case Step.Kind.TOOL:
            from agents.llm.requests.resolution import tool_output

            return tool_output(result)
        case Step.Kind.MODEL:
            from agents.llm.requests.resolution import model_output

            return model_output(result, step.arguments)
    return result


def _outcome(run: Run, outcome: UncertainOutcome, by: str) -> Outcome:
    if outcome == "fail":
        return Outcome(status=RunStatus.FAILED, reason=f"resolved by {by}: it failed", error=run.status_reason)
    return back_in_line(run, f"resolved by {by}")
