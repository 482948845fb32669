"""The long-term memory of agents: their notes, and which run or person wrote each."""

from functools import partial
from typing import Any

from django import forms
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.widgets import UnfoldBooleanWidget

from agents import registry
from agents.memory import KEY_LENGTH, TEXT_LENGTH, searched
from agents.models import MemoryNote
from config.console.access.audit import entries_of
from config.console.parts import fields
from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.html import shortened
from config.console.parts.links import listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel, acting, button, column, time_column
from config.console.parts.sections import Facts, Notice, Section, Text
from config.console.parts.service_button import service_button
from runs.actions.memory import create_note, delete_note, edit_note
from runs.exceptions import RunError


class NewForm(forms.Form):
    agent = fields.ChoiceField(label="Agent")
    key = fields.CharField(max_length=KEY_LENGTH, label="Key", help_text="Such as customer:4711.")
    text = fields.TextField(max_length=TEXT_LENGTH, rows=6, label="Text")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].choices = [(one.name, one.name) for one in registry.all_agents()]  # type: ignore[attr-defined]


class EditForm(forms.Form):
    revision = forms.IntegerField(widget=forms.HiddenInput)
    text = fields.TextField(max_length=TEXT_LENGTH, rows=8, label="Text")
    trusted = forms.BooleanField(
        required=False,
        widget=UnfoldBooleanWidget,
        label="Trusted",
        help_text="Off: each run that reads it counts as one that has seen untrusted data.",
    )


DELETE = dialog("Delete this note?", "The agent forgets it for good.", "Delete")


@admin.register(MemoryNote)
class MemoryPanel(Panel):
    """What agents keep for their later runs."""

    list_display = ("agent", "key", "beginning", "trusted", "updated")
    list_filter = ("agent",)
    search_fields = ("key", "text")
    search_help_text = "Words of keys and texts, or their beginnings"
    ordering = ("-updated_at", "-id")
    actions_detail = ("edit", "remove")
    updated = time_column("written", "updated_at")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("agents.change_memorynote")

    def get_queryset(self, request: HttpRequest) -> QuerySet[MemoryNote]:
        notes: QuerySet[MemoryNote] = super().get_queryset(request)
        return notes.defer("words")

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[MemoryNote], search_term: str
    ) -> tuple[QuerySet[MemoryNote], bool]:
        return (searched(queryset, search_term) if search_term else queryset), False

    @column("text")
    def beginning(self, note: MemoryNote) -> str:
        return shortened(note.text, 120)

    @column("trusted")
    def trusted(self, note: MemoryNote) -> str:
        return "no" if note.is_tainted else "yes"

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewForm(request.POST or None)
        if form.is_valid():
            given = form.cleaned_data
            try:
                made = create_note(given["agent"], given["key"], given["text"], by=acting(request))
            except (RunError, ValueError) as refusal:
                form.add_error(None, str(refusal))
            else:
                return leave(request, page("agents_memorynote", made.pk))
        back = listing("agents_memorynote")
        return form_page(self, request, form, title="New note", submit="Create the note", back=back)

    @button("Edit", permissions=["agents.change_memorynote"], icon="edit", variant="primary")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        note = get_object_or_404(MemoryNote.objects.defer("words"), pk=object_id)
        initial = {"revision": note.revision, "text": note.text, "trusted": not note.is_tainted}
        form = EditForm(request.POST or None, initial=initial)
        back = page("agents_memorynote", note.pk)
        if form.is_valid():
            act = partial(edit_note, note.pk, **form.cleaned_data, by=acting(request))
            return attempt(request, act, done="Saved.", back=back)
        return form_page(self, request, form, title=f"Note {note}", submit="Save", back=back, obj=note)

    @service_button("Delete", "agents.change_memorynote", DELETE, icon="delete", done="Deleted.", to_list=True)
    def remove(self, object_id: str, by: str) -> None:
        delete_note(int(object_id), by=by)

    def sections(self, request: HttpRequest, obj: MemoryNote) -> list[Section]:
        said = "Trusted." if not obj.is_tainted else "Not trusted: it taints each run that reads it."
        facts = Facts(
            rows=[
                ("Agent", obj.agent),
                ("Key", obj.key),
                ("Written by", run_link(obj.run_id) if obj.run_id else obj.by),
                ("Revision", obj.revision),
                ("Written", moment(obj.updated_at)),
                ("Created", moment(obj.created_at)),
            ]
        )
        level = "warning" if obj.is_tainted else "good"
        return [
            Notice(text=said, level=level),
            facts,
            Text(title="Text", text=obj.text),
            entries_of("memorynote", obj.pk),
        ]
