"""A deed done to every run a filter finds: first how many they are, then batch by batch.

Runs that come to match meanwhile are left alone. Those that are meant come no later in the queue's order than the last
one at the preview; a requeued run goes to the end of that order, so none is requeued twice, though it fail again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.db.models import Count, Max, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import leave
from config.console.parts.panel import Panel, acting
from config.console.parts.sections import Notice, Section, Table
from runs.exceptions import RunError
from runs.models import Run

BATCH = 200  # runs of one request; each is a transaction of its own
COUNTED = 100_000  # runs looked at for the preview
KINDS = 20  # rows of it


@dataclass(frozen=True, kw_only=True)
class Deed:
    """What is done to each run, and to which it may be done."""

    verb: str
    done: str
    legal: Q
    otherwise: str
    act: Callable[[Run, str], object]


class Progress(forms.Form):
    """Where in the queue's order it is and where it ends, and what came of it so far."""

    after = forms.IntegerField(widget=forms.HiddenInput)
    upto = forms.IntegerField(widget=forms.HiddenInput)
    total = forms.IntegerField(widget=forms.HiddenInput)
    done = forms.IntegerField(widget=forms.HiddenInput)
    refused = forms.IntegerField(widget=forms.HiddenInput)


def carry_out_or_ask(panel: Panel, request: HttpRequest, chosen: QuerySet[Run], deed: Deed) -> HttpResponse | None:
    """Those chosen by hand at once; all that a filter finds after a preview, and in batches."""
    by = acting(request)
    if request.POST.get("select_across") != "1":
        in_order = chosen.order_by("seq")  # in which they first stood in the queue
        carry_out(
            request, in_order, lambda run: deed.act(run, by), done=deed.done, legal=deed.legal, otherwise=deed.otherwise
        )
        return None
    progress = Progress(request.POST)
    if "upto" not in request.POST or not progress.is_valid():
        return _preview(panel, request, chosen, deed)
    return _batch(panel, request, chosen, deed, progress.cleaned_data)


def _preview(panel: Panel, request: HttpRequest, chosen: QuerySet[Run], deed: Deed) -> HttpResponse:
    found = Run.objects.filter(pk__in=chosen.order_by().values("pk")[:COUNTED])
    counts: dict[str, Any] = {"runs": Count("pk"), "legal": Count("pk", filter=deed.legal)}
    counted: dict[str, int] = found.aggregate(**counts, upto=Max("seq"))
    kinds: Any = found.values("status", "agent").annotate(**counts).order_by("status", "agent")
    largest = sorted(kinds, key=lambda kind: -kind["runs"])
    rows = [(kind["status"], kind["agent"], f"{kind['runs']:,}", f"{kind['legal']:,}") for kind in largest[:KINDS]]
    total, more = counted["legal"], " or more" if counted["runs"] == COUNTED else ""
    notice = Notice(
        level="warning" if total else "info",
        text=f"{counted['runs']:,}{more} runs match the filter. {deed.verb} is possible for {total:,}{more} of them.",
        details=[f"Of the others: {deed.otherwise}."] if total < counted["runs"] else [],
    )
    table = Table(
        title="Which they are",
        headers=("Status", "Agent", "Runs", f"{deed.verb} possible"),
        rows=rows,
        empty="None.",
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
            deed.act(run, acting(request))
        except RunError:
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
        messages.warning(request, f"{so_far['refused']:,} refused: what is so of each says its page.")
    return leave(request, request.get_full_path())


def _how_far(so_far: dict[str, int], deed: Deed) -> Notice:
    refused = f", {so_far['refused']:,} refused" if so_far["refused"] else ""
    return Notice(
        text=f"{so_far['done']:,} of {so_far['total']:,} {deed.done}{refused}.",
        details=["It goes on by itself while this page is open."],
    )


def _show(
    panel: Panel, request: HttpRequest, deed: Deed, progress: Progress, sections: list[Section], *, has_begun: bool
) -> HttpResponse:
    request.current_app = panel.admin_site.name
    context = {
        **panel.admin_site.each_context(request),
        "opts": panel.opts,
        "title": f"{deed.verb} all runs the filter finds",
        "sections": sections,
        "progress": progress,
        "action": request.POST["action"],
        "chosen": request.POST.getlist(ACTION_CHECKBOX_NAME)[:1],
        "has_begun": has_begun,
        "submit_text": "Go on" if has_begun else f"{deed.verb} {progress['total'].value():,}",
        "is_possible": bool(progress["total"].value()),
        "back": request.get_full_path(),
    }
    return TemplateResponse(request, "admin/console/bulk.html", context)
