"""Decisions made in the inbox: each calls the service that the object's own page calls, for those who may do it there."""

from collections.abc import Callable
from uuid import UUID

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.db.models import BigIntegerField
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.text import capfirst
from django.views.decorators.http import require_POST

from config.console.parts.dialogs import attempt
from config.console.parts.panel import acting
from runs.actions.approve import decide
from runs.actions.incidents import (
    UNTIL_VERSION,
    acknowledge_incident,
    close_incident,
    mute_incident,
    requeue_incident,
)
from runs.actions.resolve import resolve
from runs.models import Approval

NEEDED = {
    "approve": "runs.decide_approval",
    "deny": "runs.decide_approval",
    "answer": "runs.decide_approval",
    "did_not_happen": "runs.resolve_run",
    "fail": "runs.resolve_run",
    "requeue": "runs.requeue_run",
    "acknowledge": "runs.acknowledge_incident",
    "mute": "runs.mute_incident",
    "close": "runs.close_incident",
}


class Decision(forms.Form):
    """`guard`: what the reader saw, see `decisions.Waiting`."""

    decision = forms.ChoiceField(choices=[(name, name) for name in NEEDED])
    id = forms.CharField(max_length=40)
    guard = forms.CharField(required=False, strip=False)
    text = forms.CharField(required=False, max_length=4000)


@require_POST
def decide_in_inbox(request: HttpRequest) -> HttpResponse:
    form = Decision(request.POST)
    if not form.is_valid():
        return HttpResponse("Reload the page, and try again.", status=400)
    given = form.cleaned_data
    if not request.user.has_perm(NEEDED[given["decision"]]):
        raise PermissionDenied
    back = reverse("inbox") + "#waiting"  # where the next one is
    act = _act(given["decision"], given["id"], given["guard"], given["text"], acting(request))
    try:
        return attempt(request, act, back=back)
    except ValueError as wrong:
        messages.error(request, f"{capfirst(str(wrong))}.")
        return HttpResponseRedirect(back)


def _act(decision: str, id_: str, guard: str, text: str, by: str) -> Callable[[], str]:
    match decision:
        case "approve" | "deny" | "answer":
            return lambda: decide_as_seen(decision, UUID(id_), guard, by, text)
        case "did_not_happen" | "fail":
            return lambda: _resolve(decision, UUID(id_), int(guard), by)
        case "requeue":
            return lambda: requeue_covered(int(id_), min(int(guard), BigIntegerField.MAX_BIGINT), by)
        case "acknowledge":
            return lambda: acknowledge(int(id_), by)
        case "mute":
            return lambda: mute(int(id_), by)
        case _:
            return lambda: _close(int(id_), by)


def decide_as_seen(decision: str, approval: UUID, digest: str, by: str, text: str = "") -> str:
    """`digest`: of the question that the reader saw. `text`: the answer, or the reason. Returns what is said about it."""
    if not digest:
        raise ValueError("the question that you saw is not named: reload the page")
    if decision == "answer":
        if not text.strip():
            raise ValueError("enter an answer first")
        asked = Approval.objects.select_related("wait").get(pk=approval)
        decide(approval, decision="edit", by=by, arguments=asked.answered(text), digest=digest)
        return "Answered: the run continues."
    if decision == "approve":
        decide(approval, decision="approve", by=by, reason=text, digest=digest)
        return "Approved: the run continues."
    decide(approval, decision="deny", by=by, reason=text, digest=digest)
    return "Denied: the run continues."


def _resolve(outcome: str, run: UUID, epoch: int, by: str) -> str:
    resolve(run, outcome="fail" if outcome == "fail" else "did_not_happen", by=by, epoch=epoch)
    return "Resolved: the run fails." if outcome == "fail" else "Resolved: the run continues."


def requeue_covered(incident: int, upto: int, by: str) -> str:
    """The failed runs of an incident, up to the last one that the reader saw. Returns what is said about it."""
    done = requeue_incident(incident, upto=upto, by=by)
    refused = f" {done.refused:,} refused: see the page of each run." if done.refused else ""
    return f"{done.runs:,} requeued.{refused}" + (" There are more: requeue again for the rest." if done.left else "")


def acknowledge(incident: int, by: str) -> str:
    acknowledge_incident(incident, by=by)
    return "Acknowledged."


def mute(incident: int, by: str) -> str:
    muted = mute_incident(incident, until=UNTIL_VERSION, by=by)
    return f"Muted until a worker starts with a version other than {' and '.join(muted.muted_versions)}."


def _close(incident: int, by: str) -> str:
    close_incident(incident, by=by)
    return "Closed."
