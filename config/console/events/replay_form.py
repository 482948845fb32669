"""The form of a replay: a search, the triggers and the rate, with a preview and a shadow run of a sample."""

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.text import capfirst
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminSelectMultipleWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from config.console.events.search_form import SOURCE
from config.console.parts import fields
from config.console.parts.dialogs import leave
from config.console.parts.links import event_link, page
from config.console.parts.list_search import InstantOrAge, show_zone
from config.console.parts.pages import Group, form_page
from config.console.parts.panel import Panel, acting
from config.console.parts.previews import Preview, is_asked, wrong_with
from config.console.parts.sections import Notice, Section, Table
from config.console.runs.shadow import told
from runs.exceptions import RunError
from runs.shadow.process import NotTried, report_of
from triggers.events.search import FieldIs, Search
from triggers.exceptions import RuleError
from triggers.models import Replay, Source, Trigger
from triggers.replays.preview import MOST, preview, sample
from triggers.replays.start import FASTEST, LEAST_URGENT, USUAL_RATE, start_replay, within

TRY = "_try"  # in the form's POST: execute a shadow run of a sample, start nothing
LISTED = 20  # triggers in the preview


def _text(example: str = "") -> UnfoldAdminTextInputWidget:
    return UnfoldAdminTextInputWidget(attrs={"placeholder": example})


class ReplayForm(forms.Form):
    source = fields.ModelChoiceField(
        queryset=Source.objects.order_by("slug"),
        required=False,
        empty_label="any",
        label="Source",
        help_text="Choose the source of the events.",
    )
    type = forms.CharField(
        required=False, max_length=255, widget=_text("order.*"), label="Type", help_text="Enter a type or a pattern."
    )
    subject = forms.CharField(
        required=False, max_length=1024, widget=_text(), label="Subject", help_text="Enter the exact subject."
    )
    start = InstantOrAge(
        required=False,
        widget=_text("24h or 2026-11-20T09:00"),
        label="Received from",
        help_text="Enter a time in {zone}, or a duration ago. Empty: from the oldest event.",
    )
    end = InstantOrAge(
        required=False,
        widget=_text("1h or 2026-11-21"),
        label="Received before",
        help_text="Enter a time in {zone}, or a duration ago. Empty: until now.",
    )
    field = forms.CharField(
        required=False,
        max_length=10_000,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2, "placeholder": "customer.id=42"}),
        label="Fields of the data",
        help_text="Enter a path and a value per line. All of them apply.",
    )
    all = fields.BooleanField(
        required=False,
        label="All events",
        help_text="Turn on to replay everything that is recorded, where nothing above leaves out an event.",
    )
    triggers = forms.ModelMultipleChoiceField(
        queryset=Trigger.objects.filter(enabled=True).order_by("slug"),
        required=False,
        widget=UnfoldAdminSelectMultipleWidget(attrs={"size": 8}),
        label="Only these triggers",
        help_text="Choose several with Ctrl or ⌘. None chosen: every trigger that matches.",
    )
    rate = forms.FloatField(
        min_value=0.001,
        max_value=FASTEST,
        initial=USUAL_RATE,
        widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any"}),
        label="Rate",
        help_text=f"Set the events per second, at most {FASTEST:,.0f}.",
    )
    priority = fields.IntegerField(
        min_value=0,
        max_value=LEAST_URGENT,
        initial=LEAST_URGENT,
        label="Priority",
        help_text=f"Set the priority of its runs: 0 is most urgent, {LEAST_URGENT} least.",
    )

    def __init__(self, request: HttpRequest, data: Any = None, **options: Any) -> None:
        super().__init__(data, **options)
        show_zone(self, request)

    def clean_field(self) -> tuple[FieldIs, ...]:
        lines = [line.strip() for line in self.cleaned_data["field"].splitlines()]
        try:
            return tuple(FieldIs.parse(line) for line in lines if line)
        except RuleError as wrong:
            raise forms.ValidationError(f"{capfirst(str(wrong))}.") from None

    def search(self) -> Search:
        """The search of a valid form. Raises RuleError."""
        given = self.cleaned_data
        source = given["source"].slug if given["source"] else ""
        names = ("type", "subject", "start", "end")
        return Search(source=source, fields=given["field"], **{name: given[name] for name in names})

    def groups(self, preview: Preview) -> list[Group]:
        names = list(self.fields)
        return [
            Group(title="Events", fields=[self[name] for name in names[:7]]),
            Group(title="Replay", fields=[self[name] for name in names[7:]], sections=[preview]),
        ]


def replay_page(panel: Panel, request: HttpRequest) -> HttpResponse:
    form = ReplayForm(request, request.POST or None, initial=_initial(request))
    sections: list[Section] = []
    if form.is_valid() and TRY in request.POST:
        sections = tried(form, request)
    elif form.is_valid() and not is_asked(request) and (started := _start(form, request)):
        messages.success(request, f"Started a replay of {started.total:,} event{'' if started.total == 1 else 's'}.")
        return leave(request, page("triggers_replay", started.pk))
    return form_page(
        panel,
        request,
        form,
        title="Replay events",
        submit="Start the replay",
        back=reverse("admin:triggers_event_changelist"),
        groups=form.groups(preview_of(form, request)),
        sections=sections,
    )


def preview_of(form: ReplayForm, request: HttpRequest) -> Preview:
    """The preview of the form's current values."""
    url = reverse("admin:triggers_replay_preview")
    if not form.is_bound:
        initial = {name: form.get_initial_for_field(field, name) or "" for name, field in form.fields.items()}
        form = ReplayForm(request, initial)
    if not form.is_valid():
        return Preview(url=url, wrong=wrong_with(form), action=(TRY, "Try a sample"))
    try:
        found = preview(within(form.search()), list(form.cleaned_data["triggers"]))
    except RuleError as wrong:
        return Preview(url=url, wrong=[f"{capfirst(str(wrong))}."], action=(TRY, "Try a sample"))
    return Preview(
        url=url,
        words=_said(found.events, found.without_payload, found.unheard),
        headers=("Trigger", "Events that it listens to"),
        rows=[(one.trigger.slug, f"{one.events:,}") for one in found.listeners[:LISTED]],
        note=_note(len(found.listeners)),
        action=(TRY, "Try a sample"),
    )


def tried(form: ReplayForm, request: HttpRequest) -> list[Section]:
    """A shadow run of the newest event that a trigger matches."""
    try:
        sampled = sample(within(form.search()), list(form.cleaned_data["triggers"]))
    except RuleError as wrong:
        return [Notice(level="bad", text=f"{capfirst(str(wrong))}.")]
    table = Table(
        title="The newest events",
        headers=("Event", "Type", "Triggers that match it today"),
        rows=[
            (event_link(one.event.pk), one.event.type, ", ".join(map(str, one.triggers)) or "none") for one in sampled
        ],
        empty="None.",
    )
    for one in sampled:
        for trigger in one.triggers:
            command = ["shadow", str(one.event.pk), "--trigger", trigger.slug, "--by", acting(request)]
            try:
                return [table, *told(report_of(command))]
            except NotTried as why_not:
                return [table, Notice(level="bad", text=str(why_not))]
    return [table, Notice(text="No trigger matches any of them, so there is nothing to try.")]


def _initial(request: HttpRequest) -> dict[str, Any]:
    """The initial values, from the search in the list of events."""
    given = {name: request.GET.get(name, "") for name in ("type", "subject", "start", "end", "field")}
    return {**given, "source": request.GET.get(SOURCE, "")}


def _start(form: ReplayForm, request: HttpRequest) -> Replay | None:
    given = form.cleaned_data
    try:
        return start_replay(
            form.search(),
            triggers=list(given["triggers"]),
            rate=given["rate"],
            priority=given["priority"],
            everything=given["all"],
            by=acting(request),
        )
    except RuleError as wrong:
        form.add_error(wrong.field if wrong.field in form.fields else None, f"{capfirst(str(wrong))}.")
    except RunError as refusal:
        form.add_error(None, str(refusal))
    return None


def _said(events: int, gone: int, unheard: int) -> str:
    if events > MOST:
        return f"The search finds more than {MOST:,} events: choose a shorter range."
    if not events:
        return "The search finds no event."
    said = f"The search finds {events:,} event{'' if events == 1 else 's'}."
    if gone:
        said += f" {gone:,} of them {_are(gone)} skipped, because retention or erasure removed their payload."
    if unheard:
        said += f" {unheard:,} of them {_are(unheard)} skipped, because none of the triggers listens to them."
    return said


def _note(triggers: int) -> str:
    if not triggers:
        return "No trigger listens to any of them."
    more = f" {triggers - LISTED:,} more are not shown." if triggers > LISTED else ""
    return f"Filters may leave out more: try a sample.{more}"


def _are(count: int) -> str:
    return "is" if count == 1 else "are"
