"""Incidents: what fails and why, the notifications about it, and its runs, requeued in one step."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.db.models import BigIntegerField, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.forms import BaseDialogForm

from agents.kernel.durations import in_words
from agents.models import ChecklistItem
from config.console.access.audit import entries_of
from config.console.incidents.failing import FAILED_SINCE, FAILS, INTERMITTENT, Thing
from config.console.incidents.failure_rates import rates_of_spawned, rates_of_triggers
from config.console.incidents.mute import ACKNOWLEDGE, MUTE, UNMUTE, AcknowledgeForm, MuteForm
from config.console.parts.dialogs import dialog, leave, submit
from config.console.parts.filters import ConditionFilter
from config.console.parts.incident_words import acknowledged, muted
from config.console.parts.links import agent_link, link, page, run_link
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, acting, button, column, is_list, time_column
from config.console.parts.sections import Facts, Notice, Section, Table, Text
from config.console.parts.service_button import service_button
from config.console.runs.last_runs import Rate
from config.console.runs.words import first_line
from runs.actions.incidents import (
    IN_STATUS,
    MUTED,
    Requeued,
    acknowledge_incident,
    close_incident,
    failed_runs,
    last_covered,
    mute_incident,
    requeue_incident,
    unmute_incident,
)
from runs.incidents.tell import failures_of, topic_of, words_of
from runs.models import Incident, Notification, Run
from triggers.models import Source, Trigger

SHOWN = 20  # runs, notifications
COLOURS = {
    "open": "danger",
    "muted": "default",
    "acknowledged": "info",
    INTERMITTENT: "warning",
    FAILED_SINCE: "warning",
    "closed": "default",
    "noticed": "info",
}


class RequeueForm(BaseDialogForm):  # type: ignore[misc]
    """`upto`: the last failure when the dialog was opened. A form that is sent twice requeues no run again that failed again."""

    upto = forms.IntegerField(min_value=0, max_value=BigIntegerField.MAX_BIGINT, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.initial = {"upto": last_covered(int(self.object_id))}


REQUEUE = dialog(
    "Requeue its failed runs?",
    "Runs all of them again, with all their attempts, in the order in which they failed. Recorded steps are not repeated.",
    "Requeue them",
    RequeueForm,
)
CLOSE = dialog(
    "Close this incident?", "It opens again if the failures go on. Its runs stay as they are.", "Close the incident"
)


class StatusFilter(ConditionFilter):
    title = "status"
    parameter_name = "status"
    conditions: ClassVar = {
        **{status: (status, which) for status, which in IN_STATUS.items()},
        "failing": ("fails, also now and then, and not muted", FAILS & ~MUTED),
        "muted": ("fails, also now and then, and muted", FAILS & MUTED),
    }


@admin.register(Incident)
class IncidentPanel(Panel):
    """Failures of one thing with one cause."""

    list_display = ("thing", "status_label", "cause", "count", "first", "last")
    list_display_links = ("thing", "cause")
    list_filter = (StatusFilter, "kind")
    search_fields = ("name", "agent", "cause")
    search_help_text = "name, agent or cause"
    ordering = ("-id",)
    actions_detail = ("requeue_runs", "acknowledge_this", "mute_this", "unmute_this", "close_this")

    first = time_column("first failure", "first_at")
    last = time_column("last failure", "last_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Incident]:
        found: QuerySet[Incident] = super().get_queryset(request)
        shows_noticed = request.GET.get("status") == "noticed" or not is_list(request)
        return found if shows_noticed else found.exclude(opened_at=None)

    @column("what fails")
    def thing(self, incident: Incident) -> str:
        return words_of(incident)[0]

    @column("status", label=COLOURS)
    def status_label(self, incident: Incident) -> str:
        return _status(incident)

    @button(
        "Requeue its failed runs", permissions=["runs.requeue_run"], icon="replay", variant="primary", dialog=REQUEUE
    )
    def requeue_runs(self, request: HttpRequest, form: RequeueForm, object_id: str) -> HttpResponse:
        done = requeue_incident(int(object_id), upto=form.cleaned_data["upto"], by=acting(request))
        _say(request, done)
        return leave(request, page("runs_incident", object_id))

    @service_button("Close", "runs.close_incident", CLOSE, icon="check", done="Closed.")
    def close_this(self, object_id: str, by: str) -> None:
        close_incident(int(object_id), by=by)

    @button("Acknowledge", permissions=["runs.acknowledge_incident"], icon="visibility", dialog=ACKNOWLEDGE)
    def acknowledge_this(self, request: HttpRequest, form: AcknowledgeForm, object_id: str) -> HttpResponse:
        def act() -> None:
            acknowledge_incident(int(object_id), by=acting(request), note=form.cleaned_data["note"])

        back = page("runs_incident", object_id)
        return submit(request, ACKNOWLEDGE, form, act, field="note", done="Acknowledged.", back=back)

    @button("Mute", permissions=["runs.mute_incident"], icon="notifications_off", dialog=MUTE)
    def mute_this(self, request: HttpRequest, form: MuteForm, object_id: str) -> HttpResponse:
        def act() -> None:
            given = form.cleaned_data
            mute_incident(int(object_id), until=given["until"], by=acting(request), note=given["note"])

        return submit(request, MUTE, form, act, field="until", done="Muted.", back=page("runs_incident", object_id))

    @service_button("End the mute", "runs.mute_incident", UNMUTE, icon="notifications", done="No longer muted.")
    def unmute_this(self, object_id: str, by: str) -> None:
        unmute_incident(int(object_id), by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        incident = Incident.objects.filter(pk=object_id).first()
        if incident is None:
            return dict.fromkeys(self.actions_detail, False)
        return {
            "requeue_runs": bool(failed_runs(incident.pk, 1)),
            "acknowledge_this": incident.is_failing and not incident.acknowledged_at,
            "mute_this": incident.is_failing and not incident.is_muted,
            "unmute_this": incident.is_muted,
            "close_this": incident.is_open,
        }

    def sections(self, request: HttpRequest, obj: Incident) -> list[Section]:
        error = [Text(title="Last error", text=obj.error)] if obj.error else []
        covers = [_runs(obj)] if obj.covered.exists() else []
        return [_notice(obj), _facts(obj), *error, *covers, _told(obj), entries_of("incident", obj.pk)]


def _say(request: HttpRequest, done: Requeued) -> None:
    messages.success(request, f"{done.runs:,} requeued.")
    if done.refused:
        messages.warning(request, f"{done.refused:,} refused: see the page of each run.")
    if done.left:
        messages.warning(request, "There are more: requeue again for the rest.")


def _notice(incident: Incident) -> Notice:
    thing, failures = words_of(incident)
    if incident.is_open:
        text = f"{thing}: {failures_of(incident, incident.in_a_row)} since the last success."
        return Notice(text=text, level="bad", details=[incident.cause])
    if not incident.closed_at:
        return Notice(text=f"{thing}: too few {failures} in a row for an incident.", details=[incident.cause])
    by = f"Closed by {incident.closed_by}" if incident.closed_by else f"{thing} succeeded again"
    over = f"{by} after {in_words(incident.closed_at - (incident.opened_at or incident.first_at))}."
    if not incident.has_failed_since:
        return Notice(text=over, level="good", details=[incident.cause])
    return _failed_since(incident, thing, over)


def _failed_since(incident: Incident, thing: str, over: str) -> Notice:
    rate = _rate(incident)
    if rate and rate.runs and not rate.failed and not incident.closed_by:
        text = f"{thing} failed again after its end, but none of its last {rate.runs} runs failed."
        return Notice(text=text, details=[incident.cause])
    often = f": {rate}" if rate and rate.runs else ""
    text = (
        f"{over[:-1]}, and {thing} has failed since{often}."
        if incident.closed_by
        else f"{thing} fails now and then{often}."
    )
    return Notice(text=text, level="warning", details=[incident.cause])


def _status(incident: Incident) -> str:
    if incident.is_muted:
        return "muted"
    if incident.is_open and incident.acknowledged_at:
        return "acknowledged"
    if incident.has_failed_since:
        return FAILED_SINCE if incident.closed_by else INTERMITTENT
    return incident.status


def _rate(incident: Incident) -> Rate | None:
    key = (incident.kind, incident.subject)
    return _rates([key]).get(key)


def _rates(things: Collection[Thing]) -> dict[Thing, Rate]:
    """Of triggers and agents; nothing else has runs of its own."""
    triggers = [subject for kind, subject in things if kind == Incident.Kind.TRIGGER]
    has_agents = any(kind == Incident.Kind.AGENT for kind, _ in things)
    of_triggers = rates_of_triggers(triggers) if triggers else {}
    of_agents = rates_of_spawned() if has_agents else {}
    rates: dict[Thing, Rate] = {(Incident.Kind.TRIGGER, slug): rate for slug, rate in of_triggers.items()}
    return rates | {(Incident.Kind.AGENT, agent): rate for agent, rate in of_agents.items()}


def _facts(incident: Incident) -> Facts:
    return Facts(
        rows=[
            ("What fails", _thing_link(incident)),
            ("Agent", incident.agent and agent_link(incident.agent)),
            ("Failures", f"{incident.count:,}"),
            ("Failure rate", str(_rate(incident) or "")),
            ("First failure", moment(incident.first_at)),
            ("Last failure", moment(incident.last_at)),
            ("First run", incident.first_run_id and run_link(incident.first_run_id)),
            ("Last run", incident.last_run_id and run_link(incident.last_run_id)),
            ("Opened", incident.opened_at and moment(incident.opened_at)),
            ("Closed", incident.closed_at and moment(incident.closed_at)),
            ("Opened again", f"{incident.reopened:,} times" if incident.reopened else ""),
            ("Acknowledged", acknowledged(incident)),
            ("Muted", muted(incident)),
            ("Escalated", f"to {incident.escalated:,} of WAKEFUL_ESCALATE_TO" if incident.escalated else ""),
            ("Next message", incident.tell_at and not incident.is_muted and moment(incident.tell_at)),
        ]
    )


def _thing_link(incident: Incident) -> SafeString | str:
    name, _ = words_of(incident)
    kinds: dict[str, tuple[str, Any]] = {
        Incident.Kind.TRIGGER: ("triggers_trigger", Trigger.objects.filter(slug=incident.subject)),
        Incident.Kind.SOURCE: ("triggers_source", Source.objects.filter(slug=incident.subject)),
    }
    if incident.kind == Incident.Kind.ITEM:
        checklist = ChecklistItem.objects.filter(pk=incident.subject).values_list("checklist_id", flat=True).first()
        return link(page("agents_checklist", checklist), name) if checklist else name
    if incident.kind in kinds:
        noun, found = kinds[incident.kind]
        pk = found.values_list("pk", flat=True).first()
        return link(page(noun, pk), name) if pk else name
    return name


def _runs(incident: Incident) -> Table:
    newest = list(incident.covered.order_by("-id").values_list("run_id", flat=True)[:SHOWN])
    runs = Run.objects.only("id", "status", "finished_at", "error").in_bulk(newest)
    covered = incident.covered.count()
    return Table(
        title=f"Runs that it covers: {covered:,}",
        headers=("Run", "Status", "Finished", "Error"),
        rows=[
            (run_link(run.pk), run.status, moment(run.finished_at), first_line(run.error))
            for run in (runs[id] for id in newest if id in runs)
        ],
        empty="Retention has deleted them.",
        note=f"The last {SHOWN}." if covered > SHOWN else "",
    )


def _told(incident: Incident) -> Table:
    told = list(Notification.objects.filter(topic=topic_of(incident)).order_by("-id")[:SHOWN])
    without = "One of many that opened at once: the alarm many-incidents stands for it."
    return Table(
        title="Notifications about it",
        headers=("When", "Urgency", "Message"),
        rows=[(moment(one.created_at), one.urgency, link(page("runs_notification", one.pk), one.text)) for one in told],
        empty=without if incident.opened_at and not incident.told and not incident.tell_at else "Nothing yet.",
        note=f"The latest {SHOWN}." if len(told) == SHOWN else "",
    )
