"""The pages with forms: a new trigger, a change of one, and trials of its filter."""

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.response import TemplateResponse

from config.console.parts.dialogs import leave
from config.console.parts.links import listing, page
from config.console.parts.pages import form_page, plain_page
from config.console.parts.panel import Panel, acting, allowed, button
from config.console.parts.previews import wrong_with
from config.console.parts.sections import Section
from config.console.triggers.filter_trial import try_on_recent
from config.console.triggers.form import MatchForm, NewTriggerForm, TriggerForm, as_initial, policy_as_initial
from config.console.triggers.message_filter import MessageFilterForm, written
from config.console.triggers.seen_fields import respond
from triggers.declarations.overrides import create_trigger, override
from triggers.models import Trigger


class TriggerFormPages(Panel):
    own_pages = {"seen": "seen/", "try_form": "try/"}
    has_add_permission = allowed("triggers.add_trigger")
    has_edit_permission = allowed("triggers.change_trigger")
    has_try_permission = allowed("triggers.view_event")  # the result of a filter reveals event data

    def new(self, request: HttpRequest) -> HttpResponse:
        # Pages of sources and events lead here with what the trigger is to listen to.
        asked = {name: request.GET[name] for name in ("source", "types") if name in request.GET}
        initial = {**policy_as_initial({}), "overlap": "allow", **asked}
        form = NewTriggerForm(request.POST or None, initial=initial, offers=self.may_try_own(request))
        if form.is_valid():
            trigger = create_trigger(**form.values(), by=acting(request))
            messages.success(request, f"Trigger {trigger.slug} is ready.")
            return leave(request, page("triggers_trigger", trigger.pk))
        back = listing("triggers_trigger")
        groups = form.groups()
        return form_page(
            self, request, form, title="New trigger", submit="Create the trigger", back=back, groups=groups
        )

    @button("Edit", permissions=["triggers.change_trigger"], icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        # `message_filter` leads here with the filter that it has written.
        offered = {"filter": request.GET["filter"]} if "filter" in request.GET else {}
        initial = {**as_initial(trigger), **offered}
        form = TriggerForm(request.POST or None, initial=initial, offers=self.may_try_own(request))
        back = page("triggers_trigger", object_id)
        if form.is_valid():
            changes = {name: value for name, value in form.values().items() if value != getattr(trigger, name)}
            if changes:
                override(trigger, changes, by=acting(request))
            messages.success(request, "Saved." if changes else "Nothing was changed.")
            return leave(request, back)
        groups = form.groups()
        return form_page(
            self, request, form, title="Edit trigger", submit="Save", back=back, groups=groups, obj=trigger
        )

    @button("Try the filter", icon="science", url_path="try", permissions=["view", "triggers.view_event"])
    def try_filter(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Only users who may change the trigger may enter expressions; others try the stored ones."""
        trigger = get_object_or_404(Trigger, pk=object_id)
        title = "Try the filter on recent events"
        stored = {name: getattr(trigger, name) for name in MatchForm().fields}
        if not self.has_edit_permission(request):
            if request.method == "POST":
                raise PermissionDenied
            return plain_page(self, request, title=title, sections=[try_on_recent(stored)], obj=trigger)
        form = MatchForm(request.POST or None, initial=as_initial(trigger), offers=True)
        sections = []
        if not form.is_bound or form.is_valid():
            sections = [try_on_recent(form.cleaned_data if form.is_bound else stored)]
        return form_page(
            self,
            request,
            form,
            title=title,
            submit="Try it",
            back=page("triggers_trigger", object_id),
            groups=form.groups(),
            sections=sections,
            obj=trigger,
        )

    @button("Filter for messages", permissions=["triggers.change_trigger"], icon="forum", url_path="messages")
    def message_filter(self, request: HttpRequest, object_id: str) -> HttpResponse:
        """Write a filter for messages and try it; the form of the trigger saves it."""
        trigger = get_object_or_404(Trigger, pk=object_id)
        form = MessageFilterForm(request.POST or None)
        sections: list[Section] = []
        if form.is_valid():
            text = form.cleaned_data["filter"]
            sections = written(trigger, text)
            if text and self.may_try_own(request):
                stored = {name: getattr(trigger, name) for name in MatchForm().fields}
                sections.append(try_on_recent({**stored, "filter": text}))
        return form_page(
            self,
            request,
            form,
            title="Write a filter for messages",
            submit="Write it",
            back=page("triggers_trigger", object_id),
            groups=form.groups(),
            choice="kind",
            sections=sections,
            obj=trigger,
        )

    def may_try_own(self, request: HttpRequest) -> bool:
        """Whether the user may evaluate expressions of their own: these read any field of any event."""
        return self.has_try_permission(request) and (
            self.has_edit_permission(request) or self.has_add_permission(request)
        )

    def seen_view(self, request: HttpRequest) -> HttpResponse:
        """The fields of recent events, for a form that is being filled in."""
        if not self.may_try_own(request):
            raise PermissionDenied
        form = MatchForm(request.POST)
        form.is_valid()
        return respond(request, form.cleaned_data.get("source", ""), form.cleaned_data.get("types", []))

    def try_form_view(self, request: HttpRequest) -> HttpResponse:
        """The trial of a form that is being filled in."""
        if not self.may_try_own(request):
            raise PermissionDenied
        form = MatchForm(request.POST)
        shown = {"section": try_on_recent(form.cleaned_data)} if form.is_valid() else {"wrong": wrong_with(form)}
        return TemplateResponse(request, "admin/console/trial_body.html", shown)
