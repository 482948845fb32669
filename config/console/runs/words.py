"""The words and colours of a run on all pages."""

from collections.abc import Mapping
from datetime import datetime

from django.utils import timezone
from django.utils.safestring import SafeString

from agents.kernel.durations import in_words as span
from config.console.parts.html import format_html, shortened, shown
from config.console.parts.links import joined, link, page, run_link
from config.console.parts.moments import distance
from config.console.runs.waits import open_wait_of, waiting_for
from runs.models import Run
from runs.states import RunStatus

STATUS_COLOURS = {
    RunStatus.QUEUED.value: "info",
    RunStatus.RUNNING.value: "primary",
    RunStatus.WAITING.value: "default",
    RunStatus.UNCERTAIN.value: "warning",
    RunStatus.SUCCEEDED.value: "success",
    RunStatus.FAILED.value: "danger",
    RunStatus.CANCELLED.value: "default",
}
LEVELS = {RunStatus.SUCCEEDED: "good", RunStatus.FAILED: "bad", RunStatus.UNCERTAIN: "warning"}


def by_outcome(statuses: Mapping[str, int]) -> dict[str, int]:
    """Runs as bars of a chart show them, from the ground up; the others are under way, uncertain or cancelled."""
    failed, succeeded = (statuses.get(status, 0) for status in (RunStatus.FAILED, RunStatus.SUCCEEDED))
    return {"failed": failed, "succeeded": succeeded, "other": sum(statuses.values()) - failed - succeeded}


def in_words(run: Run) -> str | SafeString:
    """The state of the run, with the reason if it does not progress."""
    match run.status:
        case RunStatus.QUEUED:
            return _queued(run)
        case RunStatus.RUNNING if run.cancel_requested_at:
            return "Running; it stops within seconds, as requested."
        case RunStatus.RUNNING:
            return "Running."
        case RunStatus.WAITING:
            wait = open_wait_of(run)
            return waiting_for(wait) if wait else f"Waiting: {run.status_reason}"
        case RunStatus.SUCCEEDED:
            return "Succeeded: all its work is committed."
        case RunStatus.FAILED:
            return (
                f"Failed: {run.status_reason}"
                if run.status_reason
                else "Failed: no attempts are left, or the error was permanent."
            )
        case RunStatus.CANCELLED:
            why = run.error or run.status_reason
            return f"Cancelled: {why}" if why not in ("", RunStatus.CANCELLED) else "Cancelled."
    return f"Uncertain, a person must decide: {run.status_reason}"


def _queued(run: Run) -> str:
    if is_blocked(run):
        return "Blocked behind another run with its key."
    if run.due_at is not None and run.due_at > timezone.now():
        if not run.attempt:
            return f"Delayed by the rate limit of its trigger: starts {distance(run.due_at)}."
        return f"Retries {distance(run.due_at)}."
    if getattr(run, "is_paused", False):
        return f"Ready, but queue “{run.queue}” is paused: it starts after the queue is resumed."
    if not has_worker(run):
        return f"Ready, but no live worker serves queue “{run.queue}” and has the code of agent “{run.agent}”."
    return "Ready: waiting for a free worker."


def is_blocked(run: Run) -> bool:
    return run.status == RunStatus.QUEUED and run.ready_at is None and run.due_at is None


def has_worker(run: Run) -> bool:
    """Whether a live worker can take the run, if the query that read it checked."""
    return getattr(run, "has_worker", True)


def trigger_of(run: Run) -> str | None:
    if not run.trigger:
        return None
    return link(page("triggers_trigger", run.trigger_id), run.trigger) if run.trigger_id else run.trigger


def duration_of(run: Run) -> str | None:
    return took(run.started_at, run.finished_at) if run.started_at else None


def took(began: datetime, ended: datetime | None) -> str:
    """The duration of the run, or the time so far."""
    return span((ended or timezone.now()) - began)


def first_line(text: str) -> str:
    """The first line of a stored text, or its beginning, without secrets."""
    lines = str(shown(text)).strip().splitlines()
    return shortened(lines[0], 160) if lines else ""


def run_list(runs: list[Run]) -> SafeString | str:
    if not runs:
        return "none"
    return joined([format_html("{} {}", run_link(run.pk, run.agent), run.status) for run in runs])
