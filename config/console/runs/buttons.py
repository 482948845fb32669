"""The buttons of a run's page: each opens a dialog and calls one service."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect
from django.urls import reverse
from unfold.forms import BaseDialogForm

from agents import registry
from agents.kernel.redaction import shown_json
from config.console.parts import fields
from config.console.parts.dialogs import dialog, submit
from config.console.parts.json_field import JsonField
from config.console.parts.links import page
from config.console.parts.panel import Panel, acting, allowed, button
from config.console.parts.service_button import service_button
from runs.actions.cancel import cancel
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.actions.resolve import resolve
from runs.actions.signal import signal
from runs.models import Run, Step
from runs.states import LIVE, REQUEUEABLE, RunStatus

OUTCOMES = {
    "happened": "It happened: enter its result below; the run continues with it",
    "did_not_happen": "It did not happen and cannot happen any more: the run continues and executes it",
    "fail": "Let the run fail",
}
# If no step could have happened, there is no result to enter.
OUTCOMES_OF_MISMATCH = {"did_not_happen": "Try again: code that fits its journal is deployed", "fail": OUTCOMES["fail"]}


class ForkForm(BaseDialogForm):  # type: ignore[misc]
    """The first step to repeat, and the input."""

    step = fields.CharField(
        required=False,
        label="First step or wait to repeat",
        help_text="Enter the key of a journal entry. Entries before it are copied; this one and later ones are executed again. "
        "Empty: repeat all entries.",
    )
    input = JsonField(label="Input (JSON)", help_text="Passed to the agent as run.input.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # What is not changed in the form stays as it is stored, with what is not shown.
        self.given = shown_json(Run.objects.values_list("input", flat=True).filter(pk=self.object_id).first())
        self.initial = {"step": self.request.GET.get("step", ""), "input": self.given}

    @property
    def changes_input(self) -> bool:
        return bool(self.cleaned_data["input"] != self.given)


class SignalForm(BaseDialogForm):  # type: ignore[misc]
    name = fields.CharField(max_length=200, help_text="Enter the name that the agent waits for.")
    data = JsonField(rows=5, initial=dict, label="Data (JSON)", help_text="Passed to the agent.")


class ResolveForm(BaseDialogForm):  # type: ignore[misc]
    """A person's answer about an uncertain run, for the question that was shown."""

    epoch = forms.IntegerField(required=False, widget=forms.HiddenInput)
    outcome = fields.RadioField(label="Outcome", choices=list(OUTCOMES.items()))
    result = JsonField(rows=5, label="Result (JSON)", help_text="Enter the step's result. Only if it happened.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        run = get_object_or_404(Run.objects.only("epoch"), pk=self.object_id)
        self.initial |= {"result": None, "epoch": run.epoch}
        if not Step.objects.filter(run=self.object_id, status=Step.Status.STARTED).exists():
            self.fields["outcome"].choices = list(OUTCOMES_OF_MISMATCH.items())
            del self.fields["result"]

    def clean(self) -> dict[str, Any]:
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if cleaned.get("result") is not None and cleaned.get("outcome") != "happened":
            self.add_error(
                "result", "Only a step that happened has a result: empty the field, or choose “It happened”."
            )
        return cleaned


REQUEUE = dialog(
    "Requeue this run?", "Runs it again, with all its attempts. Recorded steps are kept and not repeated.", "Requeue"
)
CANCEL = dialog(
    "Cancel this run?",
    "Stops a running run within seconds and rolls back its uncommitted work. Its children are cancelled too.",
    "Cancel the run",
)
FORK = dialog(
    "Fork this run?",
    "Creates a new run with a copy of the journal before the step you enter. If this run has not finished, it is closed.",
    "Fork",
    ForkForm,
)
SIGNAL = dialog(
    "Signal this run?", "The run takes the signal now, or when it reaches the wait for it.", "Send", SignalForm
)
RESOLVE = dialog(
    "Resolve this run?", "Nothing is sent before you answer. The journal records your answer.", "Resolve", ResolveForm
)


class RunButtons(Panel):
    """The buttons of the run's page."""

    actions_detail = ("resolve_run", "requeue_run", "fork_run", "signal_run", "shadow_run", "cancel_run")

    has_requeue_permission = allowed("runs.requeue_run")
    has_cancel_permission = allowed("runs.cancel_run")
    has_fork_permission = allowed("runs.fork_run")

    @service_button("Requeue", "runs.requeue_run", REQUEUE, icon="replay", variant="primary", done="Requeued.")
    def requeue_run(self, object_id: str, by: str) -> None:
        requeue(UUID(object_id), by=by)

    @service_button(
        "Cancel", "runs.cancel_run", CANCEL, icon="cancel", variant="danger", done="Cancelled, or about to be."
    )
    def cancel_run(self, object_id: str, by: str) -> None:
        cancel(UUID(object_id), by=by)

    @button("Fork", permissions=["runs.fork_run"], icon="fork_right", dialog=FORK)
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
            done="Forked. This is the new run.",
            back=page("runs_run", object_id),
        )

    @button("Signal", permissions=["runs.signal_run"], icon="podcasts", dialog=SIGNAL)
    def signal_run(self, request: HttpRequest, form: SignalForm, object_id: str) -> HttpResponse:
        def act() -> None:
            signal(UUID(object_id), name=form.cleaned_data["name"], data=form.cleaned_data["data"], by=acting(request))

        return submit(request, SIGNAL, form, act, field="name", done="Signalled.", back=page("runs_run", object_id))

    @button("Shadow run", permissions=["triggers.replay_event"], icon="science", url_path="shadow")
    def shadow_run(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Open the event's shadow-run page with this run's journal."""
        run = get_object_or_404(Run.objects.only("id", "trigger", "event_ids"), pk=object_id)
        if not run.event_ids:
            raise Http404("No event woke this run.")
        query = urlencode({"trigger": run.trigger, "run": run.pk})
        return redirect(f"{reverse('admin:triggers_event_shadow_event', args=[run.event_ids[-1]])}?{query}")

    @button("Resolve", permissions=["runs.resolve_run"], icon="rule", variant="warning", dialog=RESOLVE)
    def resolve_run(self, request: HttpRequest, form: ResolveForm, object_id: str) -> HttpResponse:
        def act() -> None:
            said = form.cleaned_data
            given = {"outcome": said["outcome"], "result": said.get("result"), "epoch": said["epoch"]}
            resolve(UUID(object_id), by=acting(request), **given)

        return submit(request, RESOLVE, form, act, field="outcome", done="Resolved.", back=page("runs_run", object_id))

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        run = Run.objects.only("agent", "status", "payload_removed_at", "event_ids").filter(pk=object_id).first()
        if run is None:
            return dict.fromkeys(self.actions_detail, False)
        has_payload, is_forked = run.payload_removed_at is None, Run.objects.filter(forked_from_id=run.pk).exists()
        return {
            "resolve_run": run.status == RunStatus.UNCERTAIN,
            "requeue_run": run.status in REQUEUEABLE and has_payload and not is_forked,
            "fork_run": has_payload,
            "shadow_run": has_payload and bool(run.event_ids),
            "signal_run": run.status in LIVE and _may_wait(run.agent),
            "cancel_run": run.status in LIVE,
        }


def _may_wait(agent: str) -> bool:
    """For a signal, among others; unknown of an agent that has no code here."""
    with suppress(KeyError):
        return registry.get(agent).durable
    return True
