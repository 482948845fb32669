"""Spans of runs and their attempts, recorded when they end; nothing without an OTLP endpoint (`agents.telemetry`)."""

from datetime import datetime, timedelta
from uuid import UUID

from agents import telemetry
from agents.telemetry import Span
from runs.models import Attempt, Run
from runs.states import RunStatus

COLUMNS = (
    "agent",
    "trigger",
    "queue",
    "status",
    "error",
    "root_id",
    "parent_id",
    "event_ids",
    "created_at",
    "finished_at",
)
FAILURES = frozenset({Attempt.Outcome.FAILED, Attempt.Outcome.LOST, Attempt.Outcome.DEADLINE})


def attempt_of(root_id: UUID, run_id: UUID, epoch: int) -> Span:
    return Span.of(root_id, "attempt", run_id, epoch)


def tell_of_end(run_id: UUID, epoch: int) -> None:
    """The claim of this epoch has ended, if there was one, and perhaps the run; once that is committed."""
    run = Run.objects.only(*COLUMNS).get(pk=run_id)
    about = {"wakeful.run.id": str(run.pk), "wakeful.agent": run.agent, "wakeful.trigger": run.trigger}
    if attempt := run.attempts.filter(epoch=epoch).first():
        telemetry.record(
            attempt_of(run.root_id, run.pk, epoch),
            f"attempt {run.agent}",
            parent=Span.of(run.root_id, "run", run.pk),
            began=attempt.started_at,
            ended=attempt.ended_at,
            attributes={
                **about,
                "wakeful.attempt.epoch": epoch,
                "wakeful.attempt.number": attempt.number,
                "wakeful.attempt.outcome": attempt.outcome,
            },
            error=_kind_of(attempt.error) if attempt.outcome in FAILURES else "",
        )
        _count("attempt", attempt.started_at, attempt.ended_at, agent=run.agent, outcome=attempt.outcome)
    if run.finished_at:
        telemetry.record(
            Span.of(run.root_id, "run", run.pk),
            f"run {run.agent}",
            parent=_cause_of(run),
            began=run.created_at,
            ended=run.finished_at,
            attributes={**about, "wakeful.run.status": run.status, "wakeful.queue": run.queue},
            error=_kind_of(run.error) if run.status == RunStatus.FAILED else "",
        )
        _count("run", run.created_at, run.finished_at, agent=run.agent, status=run.status)


def _count(what: str, began: datetime, ended: datetime, **attributes: str) -> None:
    telemetry.count_seconds(f"wakeful.{what}.duration", (ended - began) / timedelta(seconds=1), **attributes)


def _cause_of(run: Run) -> Span:
    if run.parent_id:
        return Span.of(run.root_id, "run", run.parent_id)
    return Span.of(run.root_id, "dispatch", run.event_ids[0] if run.event_ids else run.root_id)


def _kind_of(error: str) -> str:
    """The name of its class: the message may quote what the agent works on."""
    return error.partition(":")[0][:100] or "error"
