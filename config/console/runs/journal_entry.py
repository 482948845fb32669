"""The full content of one journal entry, loaded when a user opens it, because an output may be large."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agents.graphs.values import without_bytes
from config.console.parts.html import format_html
from config.console.parts.links import event_link, link, page
from config.console.parts.moments import moment
from config.console.parts.sections import Cell, pretty
from config.console.runs.children import ended, statuses_of
from config.console.runs.journal import Entry, of_step, of_wait
from config.console.runs.transcript import BUILTIN
from runs.durable.transcript import BUILTIN as BUILTIN_MODEL
from runs.models import Run, Step, Wait

SENDS_ITS_KEY = (Step.Effect.READ, Step.Effect.IDEMPOTENT, Step.Effect.AT_MOST_ONCE)


@dataclass(frozen=True, kw_only=True)
class Opened:
    """An entry's content: facts, and texts by label."""

    entry: Entry
    facts: Sequence[tuple[str, Cell]]
    texts: Sequence[tuple[str, str]]


def open_entry(run: Run, key: str) -> Opened | None:
    if step := Step.objects.filter(run=run, key=key).first():
        return _step(step)
    wait = Wait.objects.filter(run=run, key=key).select_related("approval").first()
    return _wait(wait) if wait else None


def _step(step: Step) -> Opened:
    sent = format_html("<code>{}</code>", step.idempotency_key) if step.effect in SENDS_ITS_KEY else ""
    return Opened(
        entry=of_step(step),
        facts=[
            ("Effect", f"{step.effect}: {step.get_effect_display()}"),
            ("Kind", step.get_kind_display() if step.kind != Step.Kind.STEP else ""),
            ("Model", BUILTIN if (step.usage or {}).get("model") == BUILTIN_MODEL else ""),
            ("Attempts", step.attempts),
            ("Idempotency key", sent),
            ("Began", moment(step.started_at)),
            ("Ended", step.ended_at and moment(step.ended_at)),
            ("Written by claim", step.epoch),
        ],
        texts=[
            *([("Error", f"{step.error_kind}: {step.error}" if step.error_kind else step.error)] if step.error else []),
            *_as_json(("Arguments", step.arguments), ("Output", _output(step)), ("Usage", step.usage)),
        ],
    )


def _output(step: Step) -> Any:
    return without_bytes(step.output) if step.key.startswith(Step.OF_GRAPHS) else step.output


def _wait(wait: Wait) -> Opened:
    statuses = statuses_of(wait.children)
    approval = wait.approval if wait.kind == Wait.Kind.APPROVAL else None
    return Opened(
        entry=of_wait(wait, statuses),
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
        texts=_as_json(("Match", wait.match), ("Arguments", approval and approval.arguments)),
    )


def _as_json(*held: tuple[str, Any]) -> list[tuple[str, str]]:
    return [(label, pretty(value)) for label, value in held if value is not None]
