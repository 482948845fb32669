from functools import partial
from typing import ClassVar

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404

from config.console.access.audit import entries_of
from config.console.parts import fields
from config.console.parts.dialogs import dialog, leave
from config.console.parts.links import link, listing, page
from config.console.parts.pages import form_page
from config.console.parts.panel import Panel, acting, allowed, button, column
from config.console.parts.sections import Section, Table
from config.console.parts.service_button import service_button
from config.console.parts.service_form import ServiceForm
from runs.models import Recipient, RecipientGroup
from runs.notifications.edit import change_group, create_group, remove_group

NAMED = 10  # members named in the list


class GroupForm(ServiceForm):
    name = fields.CharField(help_text="Enter what agents call it in to=, e.g. office.")
    members = fields.ModelMultipleChoiceField(Recipient.objects.all(), required=False)


DELETE = dialog("Delete this group?", "Its members stay.", "Delete it")


@admin.register(RecipientGroup)
class RecipientGroupPanel(Panel):
    """Recipients that agents address together."""

    list_display: ClassVar[tuple[str, ...]] = ("name", "members_shown")
    search_fields = ("name",)
    search_help_text = "name"
    ordering = ("name",)
    actions_detail = ("edit", "delete_this")
    has_add_permission = allowed("runs.add_recipientgroup")

    def get_queryset(self, request: HttpRequest) -> QuerySet[RecipientGroup]:
        groups: QuerySet[RecipientGroup] = super().get_queryset(request).prefetch_related("members")
        return groups

    @column("members")
    def members_shown(self, group: RecipientGroup) -> str:
        names = [member.name for member in group.members.all()]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return ", ".join(names[:NAMED]) + more or "none"

    def new(self, request: HttpRequest) -> HttpResponse:
        form = GroupForm(request.POST or None)
        if form.is_valid():
            act = partial(create_group, form.cleaned_data["name"], form.cleaned_data["members"], by=acting(request))
            made = form.carry_out(act)
            if made is not None:
                return leave(request, page("runs_recipientgroup", made.pk))
        back = listing("runs_recipientgroup")
        return form_page(self, request, form, title="New group", submit="Create the group", back=back)

    @button("Edit", permissions=["runs.change_recipientgroup"], icon="edit", variant="primary")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        group = get_object_or_404(RecipientGroup, pk=object_id)
        form = GroupForm(request.POST or None, initial={"name": group.name, "members": group.members.all()})
        back = page("runs_recipientgroup", group.pk)
        if form.is_valid():
            act = partial(change_group, group.pk, **form.cleaned_data, by=acting(request))
            if form.carry_out(act) is not None:
                messages.success(request, "Saved.")
                return leave(request, back)
        return form_page(self, request, form, title=f"Group {group.name}", submit="Save", back=back, obj=group)

    @service_button(
        "Delete", "runs.delete_recipientgroup", DELETE, icon="delete", url_path="remove", done="Deleted.", to_list=True
    )
    def delete_this(self, object_id: str, by: str) -> None:
        remove_group(int(object_id), by=by)

    def sections(self, request: HttpRequest, obj: RecipientGroup) -> list[Section]:
        members = obj.members.all()
        rows = [
            (link(page("runs_recipient", one.pk), one.name), one.address, "active" if one.active else "inactive")
            for one in members
        ]
        empty = "It has no members: notifications to it go to everyone who gets all."
        title = f"Members of {obj.name}"
        return [
            Table(title=title, headers=("Name", "Address", "State"), rows=rows, empty=empty),
            entries_of("recipientgroup", obj.pk),
        ]
