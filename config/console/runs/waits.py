"""The waits of a run as text."""

import json
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.db.models import Prefetch, QuerySet
from django.template.defaultfilters import pluralize
from django.utils.safestring import SafeString

from agents.journal.canonical import source_in
from agents.kernel.reserved_types import SIGNAL
from config.console.parts.html import format_html
from config.console.parts.moments import appointment, distance
from config.console.runs.children import ended
from runs.models import Run, Wait


def with_open_waits(runs: QuerySet[Run]) -> QuerySet[Run]:
    """Adds the open wait of each run, with one more query for all runs."""
    waits = Wait.objects.filter(status=Wait.Status.OPEN).select_related("approval")
    return runs.prefetch_related(Prefetch("waits", waits, to_attr="open_waits"))


def open_wait_of(run: Run) -> Wait | None:
    """The open wait of a run read `with_open_waits`."""
    return next(iter(getattr(run, "open_waits", ())), None)


def waiting_for(wait: Wait, *, still_running: int | None = None) -> SafeString:
    """The wait as a sentence; for children with the number of live ones, if it was counted."""
    until = format_html("until {} ({})", appointment(wait.due_at), distance(wait.due_at)) if wait.due_at else None
    if wait.kind == Wait.Kind.TIME:
        return format_html("Sleeps {}.", until)
    what = _what(wait, still_running)
    return format_html("Waits for {}, {}.", what, until) if until else format_html("Waits for {}.", what)


def came_of(wait: Wait, statuses: Mapping[UUID, str]) -> str:
    """The outcome of an ended wait; the statuses are those of its children."""
    match wait.status, wait.kind:
        case Wait.Status.DONE, Wait.Kind.APPROVAL:
            approval = wait.approval
            return f"{approval.status} by {approval.decided_by}" + (f": {approval.reason}" if approval.reason else "")
        case Wait.Status.DONE, Wait.Kind.CHILDREN:
            return ended(wait.children, statuses).words
        case Wait.Status.DONE, Wait.Kind.EVENT:
            return "received"
        case _, Wait.Kind.TIME | Wait.Kind.BUDGET | Wait.Kind.MODEL if wait.status != Wait.Status.CLOSED:
            return ""
    return str(wait.get_status_display())


def _what(wait: Wait, still_running: int | None) -> str | SafeString:
    match wait.kind:
        case Wait.Kind.APPROVAL:
            return format_html("a decision: “{}”", wait.approval.question)
        case Wait.Kind.CHILDREN:
            return _children(len(wait.children), still_running)
        case Wait.Kind.BUDGET:
            return format_html("budget: {}", (wait.asked or {}).get("budget", ""))
        case Wait.Kind.SESSION:
            return format_html("session <code>{}</code>", (wait.asked or {}).get("session", ""))
        case Wait.Kind.MODEL:
            return str((wait.asked or {}).get("reason", "a model"))
    if wait.event_type == SIGNAL:
        return format_html("signal <code>{}</code>", (wait.match or {}).get("name", ""))
    source = source_in(wait.match_shape)
    from_source = format_html(" from <code>{}</code>", source) if source else ""
    return format_html("<code>{}</code>{}{}", wait.event_type, from_source, _match(wait.match or {}))


def _children(count: int, still_running: int | None) -> str:
    if still_running is None:
        return f"{count} child{pluralize(count, ',ren')}"
    return f"its children: {still_running} of {count} still run{'s' if still_running == 1 else ''}"


def _match(match: dict[str, Any]) -> str:
    said = [f"{path} = {json.dumps(value, ensure_ascii=False)}" for path, value in match.items()]
    return f" with {' and '.join(said)}" if said else ""
