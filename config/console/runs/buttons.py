"""What a person may do to a run: every button opens a dialog, and calls one service."""

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from unfold.dataclasses import UnfoldAction
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminRadioSelectWidget, UnfoldAdminTextInputWidget

from config.console.parts.dialogs import attempt, dialog, leave, submit
from config.console.parts.json_field import JsonField
from config.console.parts.links import page
from config.console.parts.panel import Panel, acting, button
from runs.actions.cancel import cancel
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.actions.resolve import resolve
from runs.actions.signal import signal
from runs.models import Run, Step
from runs.states import LIVE, REQUEUEABLE, RunStatus

OUTCOMES = {
    "happened": "It happened: enter its result below, and the run goes on with it",
    "did_not_happen": "It did not happen, and cannot any more: the run goes on and does it",
    "fail": "Let the run fail",
}
# Without a step that could have happened, there is nothing to enter a result for.
OUTCOMES_OF_MISMATCH = {
    "did_not_happen": "Try again: code that fits its journal is back",
    "fail": OUTCOMES["fail"],
}


class ForkForm(BaseDialogForm):  # type: ignore[misc]
    """From where, and with which input."""

    step = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        label="From step or wait",
        help_text="Its key in the journal: what came before it is taken over, it and the rest are done anew. "
        "Empty: everything is done anew.",
    )
    input = JsonField(label="Input (JSON)", help_text="What the agent sees as run.input")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.given = Run.objects.values_list("input", flat=True).filter(pk=self.object_id).first()
        self.initial = {"step": self.request.GET.get("step", ""), "input": self.given}

    @property
    def changes_input(self) -> bool:
        return bool(self.cleaned_data["input"] != self.given)


class SignalForm(BaseDialogForm):  # type: ignore[misc]
    name = forms.CharField(
        max_length=200, widget=UnfoldAdminTextInputWidget, help_text="What the agent waits for by this name"
    )
    data = JsonField(rows=5, initial=dict, label="Data (JSON)", help_text="What the agent is given")


class ResolveForm(BaseDialogForm):  # type: ignore[misc]
    """What somebody found out."""

    outcome = forms.ChoiceField(widget=UnfoldAdminRadioSelectWidget, label="What is so", choices=list(OUTCOMES.items()))
    result = JsonField(
        rows=5, label="Its result (JSON)", help_text="Only if it happened: what the step gives the agent"
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial["result"] = None
        if not Step.objects.filter(run=self.object_id, status=Step.Status.STARTED).exists():
            self.fields["outcome"].choices = list(OUTCOMES_OF_MISMATCH.items())
            del self.fields["result"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("result") is not None and cleaned.get("outcome") != "happened":
            self.add_error("result", "A result belongs to what happened alone: empty it, or choose that it happened.")
        return cleaned


REQUEUE = dialog(
    "Requeue this run?",
    "The same run again, with fresh attempts. What its journal holds is kept and not done again.",
    "Requeue",
)
CANCEL = dialog(
    "Cancel this run?",
    "A running one is stopped within seconds; what it has not committed by then is undone. Its children are cancelled too.",
    "Cancel the run",
)
FORK = dialog(
    "Fork this run?",
    "A new run with the journal up to the step you name. If this one has not finished, it is closed.",
    "Fork",
    ForkForm,
)
SIGNAL = dialog("Signal this run?", "It takes the signal now or when it comes to wait for it.", "Send", SignalForm)
RESOLVE = dialog(
    "Resolve this run?", "Nothing is sent before you say so. Your answer goes into its journal.", "Resolve", ResolveForm
)


class RunButtons(Panel):
    """The buttons of the run's page."""

    actions_detail = ("resolve_run", "requeue_run", "fork_run", "signal_run", "shadow_run", "cancel_run")

    def has_requeue_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("runs.requeue_run")

    def has_cancel_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("runs.cancel_run")

    def has_fork_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("runs.fork_run")

    def has_signal_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("runs.signal_run")

    def has_resolve_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("runs.resolve_run")

    def has_shadow_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("triggers.replay_event")

    @button("Requeue", permissions=["requeue"], icon="replay", variant=ActionVariant.PRIMARY, dialog=REQUEUE)
    def requeue_run(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        attempt(request, lambda: requeue(UUID(object_id), by=acting(request)), done="Requeued.")
        return leave(request, page("runs_run", object_id))

    @button("Cancel", permissions=["cancel"], icon="cancel", variant=ActionVariant.DANGER, dialog=CANCEL)
    def cancel_run(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        attempt(request, lambda: cancel(UUID(object_id), by=acting(request)), done="Cancelled, or about to be.")
        return leave(request, page("runs_run", object_id))

    @button("Fork", permissions=["fork"], icon="fork_right", dialog=FORK)
    def fork_run(self, request: HttpRequest, form: ForkForm, object_id: str) -> HttpResponse:
        def act() -> str:
            changed = {"input": form.cleaned_data["input"], "has_input": True} if form.changes_input else {}
            made = fork(UUID(object_id), step=form.cleaned_data["step"], by=acting(request), **changed)
            return page("runs_run", made.pk)

        return submit(
            request,
            FORK,
            form,
            act,
            field="step",
            done="Forked: this is the new run.",
            back=page("runs_run", object_id),
        )

    @button("Signal", permissions=["signal"], icon="podcasts", dialog=SIGNAL)
    def signal_run(self, request: HttpRequest, form: SignalForm, object_id: str) -> HttpResponse:
        def act() -> None:
            signal(UUID(object_id), name=form.cleaned_data["name"], data=form.cleaned_data["data"], by=acting(request))

        return submit(request, SIGNAL, form, act, field="name", done="Signalled.", back=page("runs_run", object_id))

    @button("Shadow run", permissions=["shadow"], icon="science", url_path="shadow")
    def shadow_run(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """The event's page for it, with this run's journal to answer."""
        run = get_object_or_404(Run.objects.only("id", "trigger", "event_ids"), pk=object_id)
        if not run.event_ids:
            raise Http404("No event woke it.")
        query = urlencode({"trigger": run.trigger, "run": run.pk})
        return redirect(f"{reverse('admin:triggers_event_shadow_event', args=[run.event_ids[-1]])}?{query}")

    @button("Resolve", permissions=["resolve"], icon="rule", variant=ActionVariant.WARNING, dialog=RESOLVE)
    def resolve_run(self, request: HttpRequest, form: ResolveForm, object_id: str) -> HttpResponse:
        def act() -> None:
            said = form.cleaned_data
            resolve(UUID(object_id), outcome=said["outcome"], result=said.get("result"), by=acting(request))

        return submit(request, RESOLVE, form, act, field="outcome", done="Resolved.", back=page("runs_run", object_id))

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[UnfoldAction]:
        run = Run.objects.only("status", "payload_removed_at", "event_ids").filter(pk=object_id).first()
        if run is None:
            return []
        has_payload, is_forked = run.payload_removed_at is None, Run.objects.filter(forked_from_id=run.pk).exists()
        possible = {
            "runs_run_resolve_run": run.status == RunStatus.UNCERTAIN,
            "runs_run_requeue_run": run.status in REQUEUEABLE and has_payload and not is_forked,
            "runs_run_fork_run": has_payload,
            "runs_run_shadow_run": has_payload and bool(run.event_ids),
            "runs_run_signal_run": run.status in LIVE,
            "runs_run_cancel_run": run.status in LIVE,
        }
        actions = super().get_actions_detail(request, object_id)
        return [action for action in actions if possible[action.action_name]]
