"""An action on every run that matches a filter: first a preview with counts, then batch by batch.

Runs that match only after the preview are excluded: the action stops at the last queue position of the preview. A requeued
run goes to the end of that order, so no run is requeued twice, even if it fails again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import ObjectDoesNotExist
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse

from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import leave
from config.console.parts.pages import render
from config.console.parts.panel import Panel, acting
from config.console.parts.sections import Notice, Section, Table
from runs.exceptions import RunError
from runs.models import Run

BATCH = 200  # runs of one request; each is a transaction of its own
COUNTED = 100_000  # runs looked at for the preview
KINDS = 20  # rows of it


@dataclass(frozen=True, kw_only=True)
class Deed:
    """An action, and the runs it is allowed for."""

    verb: str
    done: str
    legal: Q
    otherwise: str
    act: Callable[..., object]


class Progress(forms.Form):
    """Position and end in the queue's order, and the results so far."""

    after = forms.IntegerField(widget=forms.HiddenInput)
    upto = forms.IntegerField(widget=forms.HiddenInput)
    total = forms.IntegerField(widget=forms.HiddenInput)
    done = forms.IntegerField(widget=forms.HiddenInput)
    refused = forms.IntegerField(widget=forms.HiddenInput)


def carry_out_or_ask(panel: Panel, request: HttpRequest, chosen: QuerySet[Run], deed: Deed) -> HttpResponse | None:
    """Process selected runs immediately; process all runs of a filter in batches, after a preview."""
    if request.POST.get("select_across") != "1":
        in_order = chosen.order_by("seq")  # the order in which they entered the queue
        carry_out(request, in_order, deed.act, done=deed.done, legal=deed.legal, otherwise=deed.otherwise)
        return None
    progress = Progress(request.POST)
    if "upto" not in request.POST or not progress.is_valid():
        return _preview(panel, request, chosen, deed)
    return _batch(panel, request, chosen, deed, progress.cleaned_data)


def _preview(panel: Panel, request: HttpRequest, chosen: QuerySet[Run], deed: Deed) -> HttpResponse:
    # Read first: inside a subquery, a literal condition of the list (see `queued`) would be one of the runs outside it.
    ids = list(chosen.order_by().values_list("pk", flat=True)[:COUNTED])
    found = Run.objects.filter(pk__among=ids)
    counts: dict[str, Any] = {"runs": Count("pk"), "legal": Count("pk", filter=deed.legal)}
    counted: dict[str, int] = found.aggregate(**counts, upto=Max("seq"))
    kinds: Any = found.values("status", "agent").annotate(**counts).order_by("status", "agent")
    largest = sorted(kinds, key=lambda kind: -kind["runs"])
    rows = [(kind["status"], kind["agent"], f"{kind['runs']:,}", f"{kind['legal']:,}") for kind in largest[:KINDS]]
    total, more = counted["legal"], " or more" if counted["runs"] == COUNTED else ""
    notice = Notice(
        level="warning" if total else "info",
        text=f"{counted['runs']:,}{more} runs match the filter. {deed.verb} is possible for {total:,}{more} of them.",
        details=[f"Not possible for the others: {deed.otherwise}."] if total < counted["runs"] else [],
    )
    table = Table(
        title="Matching runs",
        headers=("Status", "Agent", "Runs", f"{deed.verb} possible"),
        rows=rows,
        empty="No runs.",
        note="The largest groups." if len(largest) > KINDS else "",
    )
    start = Progress(initial={"after": 0, "upto": counted["upto"] or 0, "total": total, "done": 0, "refused": 0})
    return _show(panel, request, deed, start, [notice, table], has_begun=False)


def _batch(
    panel: Panel, request: HttpRequest, chosen: QuerySet[Run], deed: Deed, so_far: dict[str, int]
) -> HttpResponse:
    meant = chosen.filter(deed.legal, seq__gt=so_far["after"], seq__lte=so_far["upto"]).order_by("seq")
    runs = list(meant[:BATCH])
    refused = 0
    for run in runs:
        try:
            deed.act(run, by=acting(request))
        except (RunError, ObjectDoesNotExist):
            refused += 1
    so_far = {
        **so_far,
        "after": runs[-1].seq if runs else so_far["upto"],
        "done": so_far["done"] + len(runs) - refused,
        "refused": so_far["refused"] + refused,
    }
    if len(runs) == BATCH:
        return _show(panel, request, deed, Progress(initial=so_far), [_how_far(so_far, deed)], has_begun=True)
    messages.success(request, f"{so_far['done']:,} {deed.done}.")
    if so_far["refused"]:
        messages.warning(request, f"{so_far['refused']:,} refused: see the page of each run.")
    return leave(request, request.get_full_path())


def _how_far(so_far: dict[str, int], deed: Deed) -> Notice:
    refused = f", {so_far['refused']:,} refused" if so_far["refused"] else ""
    return Notice(
        text=f"{so_far['done']:,} of {so_far['total']:,} {deed.done}{refused}.",
        details=["Continues while this page is open."],
    )


def _show(
    panel: Panel, request: HttpRequest, deed: Deed, progress: Progress, sections: list[Section], *, has_begun: bool
) -> HttpResponse:
    context = {
        "title": f"{deed.verb} all matching runs",
        "sections": sections,
        "progress": progress,
        "action": request.POST["action"],
        "chosen": request.POST.getlist(ACTION_CHECKBOX_NAME)[:1],
        "has_begun": has_begun,
        "submit_text": "Continue" if has_begun else f"{deed.verb} {progress['total'].value():,}",
        "is_possible": bool(progress["total"].value()),
        "back": request.get_full_path(),
    }
    return render(panel, request, "admin/console/bulk.html", **context)
