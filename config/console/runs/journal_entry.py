"""The full content of one journal entry, read when it is chosen, because an output may be large."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.http import HttpRequest
from django.urls import reverse

from agents.graphs.values import without_bytes
from config.console.parts.html import format_html
from config.console.parts.links import event_link, link, page, run_link
from config.console.parts.moments import moment
from config.console.parts.payload import cut
from config.console.parts.sections import Cell, pretty
from config.console.runs.children import SPAWN, ended, spawned_by, statuses_of
from config.console.runs.journal import Entry, of_step, of_wait
from config.console.runs.log_section import lines_within
from config.console.runs.transcript import BUILTIN
from runs.durable.transcript import BUILTIN as BUILTIN_MODEL
from runs.durable.transcript import answer_of
from runs.models import Run, Step, Wait

SENDS_ITS_KEY = (Step.Effect.READ, Step.Effect.IDEMPOTENT, Step.Effect.AT_MOST_ONCE)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An entry's content: facts, and texts by label, without secrets and cut if they are very long."""

    entry: Entry
    url: str  # its own page
    facts: Sequence[tuple[str, Cell]]
    texts: Sequence[tuple[str, str]]


def open_entry(run: Run, key: str) -> Opened | None:
    if step := Step.objects.filter(run=run, key=key).first():
        return _step(run, step)
    wait = Wait.objects.filter(run=run, key=key).select_related("approval").first()
    return _wait(wait) if wait else None


def fork_url(run: Run, opened: Opened, request: HttpRequest) -> str:
    """The form that forks the run at this entry; empty: the user may not, or its input is gone."""
    if not request.user.has_perm("runs.fork_run") or run.payload_removed_at is not None:
        return ""
    return f"{reverse('admin:runs_run_fork_run', args=[run.pk])}?{urlencode({'step': opened.entry.key})}"


def _url(run_id: UUID, key: str) -> str:
    return f"{reverse('admin:runs_run_entry', args=[run_id])}?{urlencode({'key': key})}"


def _step(run: Run, step: Step) -> Opened:
    child = _child(step)
    sent = format_html("<code>{}</code>", step.idempotency_key) if step.effect in SENDS_ITS_KEY else ""
    answer = [part for part in answer_of(step) if part.text] if step.kind == Step.Kind.MODEL else []
    return Opened(
        entry=of_step(step, child.pk, {child.pk: child.status}) if child else of_step(step),
        url=_url(run.pk, step.key),
        facts=[
            ("Child", child and run_link(child.pk, f"{child.agent}, {child.status}")),
            ("Effect", f"{step.effect}: {step.get_effect_display()}"),
            ("Kind", step.get_kind_display() if step.kind != Step.Kind.STEP else ""),
            ("Model", BUILTIN if (step.usage or {}).get("model") == BUILTIN_MODEL else ""),
            ("Attempts", step.attempts),
            ("Idempotency key", sent),
            ("Began", moment(step.started_at)),
            ("Ended", step.ended_at and moment(step.ended_at)),
            ("Written by claim", step.epoch),
        ],
        texts=_cut(
            ("Error", f"{step.error_kind}: {step.error}" if step.error_kind else step.error),
            ("Error of the child", child.error if child else ""),
            *((part.kind.capitalize(), part.text) for part in answer),
            ("Log during this step", lines_within(run, step.started_at, step.ended_at)),
            ("Arguments", _json(step.arguments)),
            ("Output", _json(_output(step))),
            ("Usage", _json(step.usage)),
        ),
    )


def _child(step: Step) -> Run | None:
    """The run that the step spawned."""
    if not step.key.startswith(SPAWN):
        return None
    found = Run.objects.filter(pk__in=spawned_by([step.run_id], [step.key]))
    return found.only("id", "agent", "status", "error").first()


def _output(step: Step) -> Any:
    return without_bytes(step.output) if step.key.startswith(Step.OF_GRAPHS) else step.output


def _wait(wait: Wait) -> Opened:
    statuses = statuses_of(wait.children)
    approval = wait.approval if wait.kind == Wait.Kind.APPROVAL else None
    return Opened(
        entry=of_wait(wait, statuses),
        url=_url(wait.run_id, wait.key),
        facts=[
            ("Waits for", wait.kind),
            ("Event type", wait.event_type),
            ("Until", wait.due_at and moment(wait.due_at)),
            ("Event", wait.event_id and event_link(wait.event_id)),
            ("Children", len(wait.children)),
            ("Failed children", ended(wait.children, statuses).failed or ""),
            ("Approval", approval and link(page("runs_approval", approval.pk), approval.status)),
            ("Began", moment(wait.created_at)),
            ("Ended", wait.ended_at and moment(wait.ended_at)),
        ],
        texts=_cut(("Match", _json(wait.match)), ("Arguments", _json(approval and approval.arguments))),
    )


def _json(value: Any) -> str:
    return "" if value is None else pretty(value)


def _cut(*texts: tuple[str, str]) -> list[tuple[str, str]]:
    """Those that are not empty."""
    shown = [(label, *cut(text)) for label, text in texts if text]
    return [(f"{label} ({note})" if note else label, text) for label, text, note in shown]
