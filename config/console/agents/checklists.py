"""Checklists of agents: their items, how the last look at each ended, and who changed what."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.widgets import UnfoldBooleanWidget

from agents import registry
from agents.checklists.history import difference
from agents.checklists.run_checklist import read_checklist
from agents.kernel.durations import in_words, parse_duration
from agents.models import Checklist, ChecklistItem
from config.console.access.audit import entries_of
from config.console.agents.page_files import edit_as_text, file_page
from config.console.parts import fields
from config.console.parts.dialogs import attempt, leave
from config.console.parts.duration_field import short
from config.console.parts.html import format_html, shown
from config.console.parts.links import listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.pages import Group, form_page
from config.console.parts.panel import Panel, acting, button, column
from config.console.parts.sections import Cell, Notice, Section, Table
from runs.actions.checklists import (
    MOST_ITEMS,
    ItemEdit,
    create_checklist,
    edit_checklist,
    silence_checklist,
    silence_item,
)
from runs.db.sql import database_now
from runs.exceptions import RunError
from triggers.models import Trigger
from triggers.page_files.pages import ChecklistPage

SHOWN = 50  # revisions
NEW_ROWS = 3
LENGTHS = [("1h", "an hour"), ("4h", "four hours"), ("1d", "a day"), ("7d", "a week"), ("", "no longer")]


class ItemsForm(forms.Form):
    """A row of fields for each item, and some empty ones; an item whose text is cleared is deleted."""

    revision = forms.IntegerField(widget=forms.HiddenInput)

    def __init__(self, *args: Any, items: Sequence[ChecklistItem], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = [*items, *[None] * min(NEW_ROWS, MOST_ITEMS - len(items))]
        for number, item in enumerate(self.rows, start=1):
            self._add_row(number, item)

    def _add_row(self, number: int, item: ChecklistItem | None) -> None:
        self.fields[f"text_{number}"] = fields.TextField(
            required=False,
            max_length=2000,
            initial=item.text if item else "",
            label="Text",
            rows=2,
            help_text="Clear it to delete the item." if item else "Enter what the agent is to look at.",
        )
        self.fields[f"every_{number}"] = fields.CharField(
            required=False,
            initial=short(item.every) if item and item.every else "",
            label="Interval",
            help_text="Enter e.g. 30m, 6h or 1d. Empty: at each run.",
        )
        self.fields[f"place_{number}"] = fields.IntegerField(required=False, initial=number, label="Place")
        self.fields[f"paused_{number}"] = forms.BooleanField(
            required=False,
            initial=bool(item and item.paused_at),
            label="Paused",
            widget=UnfoldBooleanWidget,
        )

    @property
    def groups(self) -> list[Group]:
        names = ("text", "every", "place", "paused")
        return [
            Group(
                title=f"Item {number}" if item else "New item",
                fields=[self[f"{name}_{number}"] for name in names],
                folded=item is None and number > len(self.rows) - NEW_ROWS + 1,
            )
            for number, item in enumerate(self.rows, start=1)
        ]

    def clean(self) -> None:
        for number in range(1, len(self.rows) + 1):
            name = f"every_{number}"
            try:
                self.cleaned_data[name] = _interval(self.cleaned_data.get(name, ""))
            except ValueError as error:
                self.add_error(name, str(error))

    def edits(self) -> list[ItemEdit]:
        """The items as the form has them, by place."""
        given = self.cleaned_data
        wanted = [
            (
                given[f"place_{number}"] or number,
                ItemEdit(
                    id=item.pk if item else None,
                    text=given[f"text_{number}"],
                    every=given[f"every_{number}"],
                    paused=given[f"paused_{number}"],
                ),
            )
            for number, item in enumerate(self.rows, start=1)
            if given[f"text_{number}"]
        ]
        return [edit for _, edit in sorted(wanted, key=lambda one: one[0])]


class NewForm(forms.Form):
    agent = fields.ChoiceField(label="Agent")
    trigger = fields.CharField(
        required=False,
        label="Trigger",
        help_text="Enter the slug of the only trigger it is for. Empty: all triggers of the agent.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].choices = [(one.name, one.name) for one in registry.all_agents()]  # type: ignore[attr-defined]

    def clean(self) -> None:
        slug = self.cleaned_data.get("trigger")
        if slug and not Trigger.objects.filter(slug=slug, agent=self.cleaned_data.get("agent")).exists():
            self.add_error("trigger", "The agent has no trigger with this slug.")


class SilenceForm(forms.Form):
    what = fields.ChoiceField(label="Silence")
    length = fields.ChoiceField(
        choices=LENGTHS,
        initial="1d",
        required=False,
        label="For",
        help_text="Nothing silenced is looked at, so it costs nothing. It is due again afterwards.",
    )

    def __init__(self, *args: Any, items: Sequence[ChecklistItem], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        choices = [("", "the whole checklist"), *((str(item.pk), shown(item.text)[:100]) for item in items)]
        self.fields["what"].choices = choices  # type: ignore[attr-defined]
        self.fields["what"].required = False


@admin.register(Checklist)
class ChecklistPanel(Panel):
    """What agents look at."""

    list_display = ("whose", "items_in_all", "failing", "silenced", "revised")
    search_fields = ("agent", "trigger")
    ordering = ("agent", "trigger")
    actions_detail = ("edit", "as_text", "silence", "file")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agents.change_checklist")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Checklist]:
        counted = Count("items"), Count("items", filter=Q(items__failures_in_a_row__gt=0))
        checklists: QuerySet[Checklist] = super().get_queryset(request)
        return checklists.annotate(item_count=counted[0], failing_count=counted[1])

    @column("of")
    def whose(self, checklist: Checklist) -> str:
        return str(checklist)

    @column("items")
    def items_in_all(self, checklist: Any) -> int:
        return int(checklist.item_count)

    @column("failing")
    def failing(self, checklist: Any) -> int:
        return int(checklist.failing_count)

    @column("silenced until")
    def silenced(self, checklist: Checklist) -> Any:
        return moment(_ahead(checklist.silenced_until)) if _ahead(checklist.silenced_until) else "–"

    @column("last edit")
    def revised(self, checklist: Checklist) -> Any:
        return moment(checklist.updated_at)

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewForm(request.POST or None)
        if form.is_valid():
            given = form.cleaned_data
            try:
                made = create_checklist(given["agent"], trigger=given["trigger"], by=acting(request))
            except RunError as refusal:
                form.add_error(None, str(refusal))
            else:
                return leave(request, page("agents_checklist", made.pk).replace("/change/", "/edit/"))
        back = listing("agents_checklist")
        return form_page(self, request, form, title="New checklist", submit="Create the checklist", back=back)

    @button("Edit", permissions=["agents.change_checklist"], icon="edit", variant="primary")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        checklist = get_object_or_404(Checklist, pk=object_id)
        items = list(checklist.items.all())
        form = ItemsForm(request.POST or None, items=items, initial={"revision": checklist.revision})
        back = page("agents_checklist", checklist.pk)
        if form.is_valid():
            act = partial(
                edit_checklist,
                checklist.pk,
                form.edits(),
                by=acting(request),
                revision=form.cleaned_data["revision"],
            )
            try:
                return attempt(request, act, done="Saved.", back=back)
            except ValueError as wrong:
                form.add_error(None, str(wrong))
        title = f"Checklist of {checklist}"
        return form_page(self, request, form, title=title, submit="Save", back=back, obj=checklist, groups=form.groups)

    @button("Edit as text", permissions=["agents.change_checklist"], icon="article", url_path="text")
    def as_text(self, request: HttpRequest, object_id: str) -> HttpResponse:
        checklist = get_object_or_404(Checklist, pk=object_id)
        return edit_as_text(self, request, checklist, back=page("agents_checklist", checklist.pk))

    @button("File", permissions=["agents.change_checklist"], icon="draft")
    def file(self, request: HttpRequest, object_id: str) -> HttpResponse:
        checklist = get_object_or_404(Checklist, pk=object_id)
        return file_page(self, request, ChecklistPage(checklist), back=page("agents_checklist", checklist.pk))

    @button("Silence", permissions=["agents.change_checklist"], icon="notifications_off")
    def silence(self, request: HttpRequest, object_id: str) -> HttpResponse:
        checklist = get_object_or_404(Checklist, pk=object_id)
        form = SilenceForm(request.POST if request.method == "POST" else None, items=list(checklist.items.all()))
        back = page("agents_checklist", checklist.pk)
        if form.is_valid():
            item, length = form.cleaned_data["what"], form.cleaned_data["length"]
            until = database_now() + parse_duration(length) if length else None
            act = (
                partial(silence_item, int(item), until, by=acting(request))
                if item
                else partial(silence_checklist, checklist.pk, until, by=acting(request))
            )
            return attempt(request, act, done="Silenced." if until else "No longer silenced.", back=back)
        title = f"Silence the checklist of {checklist}"
        return form_page(self, request, form, title=title, submit="Silence", back=back, obj=checklist)

    def sections(self, request: HttpRequest, obj: Checklist) -> list[Section]:
        items = list(obj.items.all())
        return [_notice(obj, items), _items(obj, items), _history(obj), entries_of("checklist", obj.pk)]


def _notice(checklist: Checklist, items: Sequence[ChecklistItem]) -> Notice:
    if until := _ahead(checklist.silenced_until):
        return Notice(text=format_html("Silenced until {}: no item is due.", moment(until)), level="warning")
    if failing := sum(item.failures_in_a_row > 0 for item in items):
        return Notice(text=f"{failing} of {len(items)} items could not be checked the last time.", level="warning")
    due = len(read_checklist(checklist.agent, checklist.trigger).due)
    return Notice(text=f"{len(items)} items, {due} due now.", level="good" if items else "info")


def _items(checklist: Checklist, items: Sequence[ChecklistItem]) -> Table:
    is_silenced = bool(_ahead(checklist.silenced_until))
    return Table(
        title="Items",
        headers=("Text", "Interval", "State", "Last outcome", "Said", "When", "Run", "Next due"),
        rows=[
            (
                item.text,
                in_words(item.every) if item.every else "each run",
                _state(item, is_silenced),
                item.last_outcome or "–",
                item.last_text,
                moment(item.last_checked_at),
                run_link(item.last_run_id) if item.last_run_id else "–",
                "at the next run" if item.every is None else moment(item.due_at),
            )
            for item in items
        ],
        empty="It has no items: the agent has nothing to look at.",
    )


def _state(item: ChecklistItem, is_silenced: bool) -> Cell:
    if item.paused_at:
        return "paused"
    if until := _ahead(item.silenced_until):
        return format_html("silenced until {}", moment(until))
    if is_silenced:
        return "silenced with its checklist"
    return f"failed {item.failures_in_a_row} times in a row" if item.failures_in_a_row > 1 else "on"


def _history(checklist: Checklist) -> Table:
    revisions = list(checklist.revisions.all()[: SHOWN + 1])
    before = {one.number: one.definition for one in revisions}
    rows = []
    for revision in revisions[:SHOWN]:
        changes = difference(before.get(revision.number - 1), revision.definition)
        for number, change in enumerate(changes):
            head = (revision.number, revision.by, moment(revision.at)) if number == 0 else ("", "", "")
            rows.append((*head, change.what, change.before or "–", change.after or "–"))
    return Table(
        title="History",
        headers=("Revision", "By", "When", "Changed", "Before", "After"),
        rows=rows,
        empty="No edits.",
        note=f"The newest {SHOWN} revisions." if len(revisions) > SHOWN else "",
    )


def _ahead(instant: Any) -> Any:
    return instant if instant and instant > database_now() else None


def _interval(text: str) -> timedelta | None:
    return parse_duration(text.strip()) if text.strip() else None
