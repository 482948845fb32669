"""What the buttons of the first page do: each posts one value, calls one service, and comes back."""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Literal
from uuid import UUID

from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import BigIntegerField
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.text import capfirst
from django.views.decorators.http import require_POST

from config.console.incidents.failure_rates import failed_of
from config.console.notifications.decide import acknowledge, decide_as_seen, mute, requeue_covered
from config.console.parts.dialogs import attempt
from config.console.parts.panel import acting
from runs.actions.incidents import unmute_incident
from runs.actions.requeue import requeue_failed
from runs.exceptions import RunError
from triggers.dispatch.hold import resume
from triggers.models import Source, Trigger
from triggers.sources.manual import fire
from triggers.sources.webhooks.test_event import send_test_event

Deed = Callable[[str, str], str]  # the value and who acts → a message


def _decide(decision: Literal["approve", "deny"]) -> Deed:
    def decided(value: str, by: str) -> str:
        approval, _, digest = value.partition(":")
        return decide_as_seen(decision, UUID(approval), digest, by)

    return decided


def _requeue(value: str, by: str) -> str:
    incident, _, upto = value.partition(":")
    return requeue_covered(int(incident), min(int(upto), BigIntegerField.MAX_BIGINT), by)


def _mute(value: str, by: str) -> str:
    incident = int(value)
    try:
        return mute(incident, by)
    except ValueError as refusal:
        raise RunError(f"{capfirst(str(refusal))}.") from None


def _requeue_lately(value: str, by: str) -> str:
    trigger, _, upto = value.replace("\0", "").rpartition(":at:")
    with transaction.atomic():
        done = requeue_failed(failed_of(trigger, datetime.fromisoformat(upto)), by=by)
    return f"{done:,} requeued."


def _unmute(value: str, by: str) -> str:
    unmute_incident(int(value), by=by)
    return "No longer muted."


def _resume(value: str, by: str) -> str:
    trigger = resume(get_object_or_404(Trigger, pk=UUID(value)), held="run", by=by)
    return f"Trigger {trigger.slug} is resumed: its held events run now, in their order."


def _test(value: str, by: str) -> str:
    kind, _, pk = value.partition(":")
    if kind == "source":
        trial = send_test_event(get_object_or_404(Source, pk=UUID(pk)), by=by)
        return "The test event is accepted." if trial.event_id else f"It was refused: {trial.reason}"
    fire(get_object_or_404(Trigger, pk=UUID(pk)), data={}, by=by)
    return "The test event is accepted."


DEEDS: Mapping[str, tuple[tuple[str, ...], Deed]] = {
    "approve": (("runs.decide_approval",), _decide("approve")),
    "deny": (("runs.decide_approval",), _decide("deny")),
    "requeue": (("runs.requeue_run",), _requeue),
    "requeue-lately": (("runs.requeue_run",), _requeue_lately),
    "acknowledge": (("runs.acknowledge_incident",), lambda value, by: acknowledge(int(value), by)),
    "mute": (("runs.mute_incident",), _mute),
    "unmute": (("runs.mute_incident",), _unmute),
    "resume": (("triggers.pause_trigger",), _resume),
    "test": (("triggers.fire_trigger", "triggers.change_source"), _test),
}


@require_POST
def act_on_home(request: HttpRequest, verb: str) -> HttpResponse:
    permissions, deed = DEEDS.get(verb, ((), None))
    if deed is None:
        raise Http404
    if not request.user.has_perms(permissions):
        raise PermissionDenied
    try:
        return attempt(request, lambda: deed(request.POST.get("value", ""), acting(request)), back=reverse("admin:index"))  # fmt: skip
    except ValueError as wrong:
        raise Http404(str(wrong)) from None
