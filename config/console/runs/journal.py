"""A page of a run's journal: its steps and waits in the order in which they began, read with a fixed number of queries
for any length."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Count, Q, QuerySet
from django.db.models.functions import Left
from django.http import HttpRequest
from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.links import run_link
from config.console.runs.children import SPAWN, spawned_by, statuses_of
from config.console.runs.waits import came_of, waiting_for
from config.console.runs.words import first_line
from runs.models import Run, Step, Wait
from runs.states import RunStatus

PER_PAGE = 200


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A step or a wait as one line."""

    key: str
    kind: str
    state: str
    began: datetime
    ended: datetime | None
    summary: str | SafeString


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page of entries, and the total counts."""

    entries: Sequence[Entry]
    steps: int
    waits: int
    failed: int
    number: int
    pages: int
    only_failed: bool
    chosen: str  # the key of the entry that is shown beside the others; empty: none is chosen

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
    """The requested page, else that of the chosen entry, else the last one, which shows the current position of the run."""
    steps, waits = Step.objects.filter(run=run), Wait.objects.filter(run=run)
    counted = steps.aggregate(steps=Count("key"), failed=Count("key", filter=~Q(status=Step.Status.DONE)))
    counted["waits"] = waits.count()
    only_failed = request.GET.get("only") == "failed"
    unproved_too = steps.exclude(status=Step.Status.DONE)
    listed: list[QuerySet[Any]] = [unproved_too] if only_failed else [steps, waits]
    count = counted["failed"] if only_failed else counted["steps"] + counted["waits"]
    pages = max(1, -(-count // PER_PAGE))
    asked, chosen = request.GET.get("entries", ""), request.GET.get("entry", "")
    # Nine digits at most: int() refuses thousands of them.
    wanted = int(asked[:9]) if asked.isdecimal() else _page_of(listed, chosen) if chosen and pages > 1 else 0
    number = min(max(wanted, 1), pages) if asked.isdecimal() or wanted else pages
    span = slice((number - 1) * PER_PAGE, number * PER_PAGE)
    entries = _failed(unproved_too, span) if only_failed else _entries(steps, waits, span)
    return Page(**counted, entries=entries, number=number, pages=pages, only_failed=only_failed, chosen=chosen)


def _page_of(listed: Sequence[QuerySet[Any]], key: str) -> int:
    """The page of these entries that has this one; 0: none has it."""
    places = (entries.filter(key=key).values_list("position", flat=True).first() for entries in listed)
    position = next((place for place in places if place is not None), None)
    if position is None:
        return 0
    before = Q(position__lt=position) | Q(position=position, key__lt=key)
    return sum(entries.filter(before).count() for entries in listed) // PER_PAGE + 1


def _failed(unproved_too: QuerySet[Step], span: slice) -> list[Entry]:
    return [of_step(step) for step in _light(unproved_too.order_by("position", "key"))[span]]


def _entries(steps: QuerySet[Step], waits: QuerySet[Wait], span: slice) -> list[Entry]:
    # Which ones, by their keys alone; then these.
    places = steps.values_list("position", "key").union(waits.values_list("position", "key"), all=True)
    keys = [key for _, key in places.order_by("position", "key")[span]]
    shown_steps = list(_light(steps.filter(key__in=keys)))
    shown_waits = list(waits.filter(key__in=keys).select_related("approval"))
    children, statuses = _children(shown_steps, shown_waits)
    found = {step.key: of_step(step, children.get(step.key), statuses) for step in shown_steps}
    found |= {wait.key: of_wait(wait, statuses) for wait in shown_waits}
    return [found[key] for key in keys if key in found]


def _children(steps: Sequence[Step], waits: Sequence[Wait]) -> tuple[dict[str, UUID], dict[UUID, str]]:
    """The spawned run by the key of its step, and the status of each child that a step or wait refers to."""
    spawning = [step for step in steps if step.key.startswith(SPAWN)]
    spawned = spawned_by({step.run_id for step in spawning}, [step.key for step in spawning]) if spawning else {}
    awaited = [id for wait in waits for id in wait.children]
    return {key: id for id, key in spawned.items()}, statuses_of([*spawned, *awaited])


def _light(steps: QuerySet[Step]) -> QuerySet[Step]:
    """Defers columns that may be large."""
    return steps.defer("error", "arguments", "output", "usage").annotate(error_begins=Left("error", 500))


def of_step(step: Step, child: UUID | None = None, statuses: Mapping[UUID, str] | None = None) -> Entry:
    """The link of a step to the run that it spawned, with that run's status."""
    status = (statuses or {}).get(child) if child else None
    return Entry(
        key=step.key,
        kind="step",
        state=RunStatus.FAILED if status == RunStatus.FAILED else step.status,
        began=step.started_at,
        ended=step.ended_at,
        summary=format_html("the child: {}", run_link(child, status)) if child and status else _outcome(step),
    )


def of_wait(wait: Wait, statuses: Mapping[UUID, str]) -> Entry:
    return Entry(
        key=wait.key,
        kind="wait",
        state=wait.status,
        began=wait.created_at,
        ended=wait.ended_at,
        summary=waiting_for(wait) if wait.status == Wait.Status.OPEN else came_of(wait, statuses),
    )


def _outcome(step: Step) -> str:
    again = f"attempt {step.attempts}" if step.attempts > 1 else ""
    match step.status:
        case Step.Status.STARTED:
            what = "started, not ended"
        case Step.Status.FAILED:
            error = getattr(step, "error_begins", None) or step.error
            is_named = not step.error_kind or error.startswith(step.error_kind)
            what = first_line(error if is_named else f"{step.error_kind}: {error}")
        case _:
            what = ""
    return " · ".join(filter(None, (again, what)))
