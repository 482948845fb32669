"""A page of a run's journal: its steps and waits in the order in which they were begun, read with a fixed number of
queries however long it is."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.db.models import Count, F, Q, QuerySet, TextField
from django.db.models.functions import Cast, Left, Length
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString

from config.console.links import event_link, link, page
from config.console.moments import moment
from config.console.run_words import first_line
from config.console.sections import Cell, pretty
from config.console.waiting import came_of, waiting_for
from runs.models import Run, Step, Wait

PER_PAGE = 200
CUT = 2_000  # characters of an error, of an output, of arguments; the entry's own page has all


@dataclass(frozen=True, kw_only=True)
class Said:
    """Something an entry holds, as text; where that is only its beginning, `of` says how many characters there are."""

    label: str
    text: str
    of: int = 0


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A step or a wait, as pages tell it."""

    key: str
    kind: str
    state: str
    began: datetime
    ended: datetime | None
    summary: str | SafeString
    facts: Sequence[tuple[str, Cell]]
    said: Sequence[Said]


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some entries of a journal, and how many there are of all."""

    entries: Sequence[Entry]
    steps: int
    waits: int
    failed: int
    number: int
    pages: int
    only_failed: bool

    @property
    def count(self) -> int:
        """Entries to be paged through."""
        return self.failed if self.only_failed else self.steps + self.waits

    @property
    def first(self) -> int:
        return (self.number - 1) * PER_PAGE + 1

    @property
    def last(self) -> int:
        return self.first + len(self.entries) - 1


def read_page(run: Run, request: HttpRequest) -> Page:
    """The page the request asks for, else the last one: that is where the run is."""
    steps, waits = Step.objects.filter(run=run), Wait.objects.filter(run=run)
    counted = steps.aggregate(steps=Count("key"), failed=Count("key", filter=~Q(status=Step.Status.DONE)))
    counted["waits"] = waits.count()
    only_failed = request.GET.get("only") == "failed"
    count = counted["failed"] if only_failed else counted["steps"] + counted["waits"]
    pages = max(1, -(-count // PER_PAGE))
    asked = request.GET.get("entries", "")
    number = min(max(int(asked), 1), pages) if asked.isdecimal() else pages
    span = slice((number - 1) * PER_PAGE, number * PER_PAGE)
    entries = _failed(steps, span) if only_failed else _entries(steps, waits, span)
    return Page(**counted, entries=entries, number=number, pages=pages, only_failed=only_failed)


def read_entry(run: Run, key: str) -> Entry | None:
    """One entry with all it holds."""
    if step := Step.objects.filter(run=run, key=key).first():
        held = [("Error", step.error), ("Arguments", step.arguments), ("Output", step.output)]
        said = [Said(label=label, text=value if label == "Error" else pretty(value)) for label, value in held if value]
        return _of_step(step, said)
    wait = Wait.objects.filter(run=run, key=key).select_related("approval").first()
    return _of_wait(wait) if wait else None


def _failed(steps: QuerySet[Step], span: slice) -> list[Entry]:
    unproved_too = steps.exclude(status=Step.Status.DONE).order_by("position", "key")
    return [_of_step(step, _beginnings(step)) for step in _cut(unproved_too)[span]]


def _entries(steps: QuerySet[Step], waits: QuerySet[Wait], span: slice) -> list[Entry]:
    # Which ones, by their keys alone; then these with what they hold.
    places = steps.values_list("position", "key").union(waits.values_list("position", "key"), all=True)
    keys = [key for _, key in places.order_by("position", "key")[span]]
    found = {step.key: _of_step(step, _beginnings(step)) for step in _cut(steps.filter(key__in=keys))}
    found |= {wait.key: _of_wait(wait) for wait in waits.filter(key__in=keys).select_related("approval")}
    return [found[key] for key in keys if key in found]


def _cut(steps: QuerySet[Step]) -> QuerySet[Step]:
    """With the beginnings of what may be large."""
    whole: dict[str, Any] = {f"whole_{name}": Cast(name, TextField()) for name in ("error", "arguments", "output")}
    begun: dict[str, Any] = {
        f"begun_{name}": Left(F(f"whole_{name}"), CUT) for name in ("error", "arguments", "output")
    }
    sizes: dict[str, Any] = {f"size_{name}": Length(F(f"whole_{name}")) for name in ("error", "arguments", "output")}
    return steps.defer("error", "arguments", "output", "usage").alias(**whole).annotate(**begun, **sizes)


def _beginnings(step: Step) -> list[Said]:
    said = []
    for name in ("error", "arguments", "output"):
        text, size = getattr(step, f"begun_{name}"), getattr(step, f"size_{name}")
        if text and text != "null":
            is_whole = size <= CUT
            said.append(
                Said(
                    label=name.capitalize(),
                    text=pretty(json.loads(text)) if is_whole and name != "error" else text,
                    of=0 if is_whole else size,
                )
            )
    return said


def _of_step(step: Step, said: Sequence[Said]) -> Entry:
    error = next((one.text for one in said if one.label == "Error"), "")
    sends_key = step.effect in (Step.Effect.READ, Step.Effect.IDEMPOTENT, Step.Effect.AT_MOST_ONCE)
    return Entry(
        key=step.key,
        kind="step",
        state=step.status,
        began=step.started_at,
        ended=step.ended_at,
        summary=_outcome(step, error),
        facts=[
            ("Effect", f"{step.effect}: {step.get_effect_display()}"),
            ("Attempts", step.attempts),
            ("Idempotency key", format_html("<code>{}</code>", step.idempotency_key) if sends_key else ""),
            ("Began", moment(step.started_at)),
            ("Ended", step.ended_at and moment(step.ended_at)),
            ("Written by claim", step.epoch),
        ],
        said=said,
    )


def _outcome(step: Step, error: str) -> str:
    again = f"attempt {step.attempts}" if step.attempts > 1 else ""
    match step.status:
        case Step.Status.STARTED:
            what = "begun and not ended"
        case Step.Status.FAILED:
            named = not step.error_kind or error.startswith(step.error_kind)
            what = first_line(error if named else f"{step.error_kind}: {error}")
        case _:
            what = ""
    return " · ".join(filter(None, (again, what)))


def _of_wait(wait: Wait) -> Entry:
    is_open = wait.status == Wait.Status.OPEN
    approval = wait.approval if wait.kind == Wait.Kind.APPROVAL else None
    return Entry(
        key=wait.key,
        kind="wait",
        state=wait.status,
        began=wait.created_at,
        ended=wait.ended_at,
        summary=waiting_for(wait) if is_open else came_of(wait),
        facts=[
            ("Waits for", wait.kind),
            ("Event type", wait.event_type),
            ("Until", wait.due_at and moment(wait.due_at)),
            ("The event that came", wait.event_id and event_link(wait.event_id)),
            ("Children", len(wait.children) or ""),
            ("Approval", approval and link(page("runs_approval", approval.pk), approval.status)),
            ("Began", moment(wait.created_at)),
            ("Ended", wait.ended_at and moment(wait.ended_at)),
        ],
        said=[
            Said(label=label, text=pretty(value))
            for label, value in (("Match", wait.match), ("Arguments", approval and approval.arguments))
            if value
        ],
    )
