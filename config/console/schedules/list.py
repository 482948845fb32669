"""The list of schedules, their create and edit forms, and the URLs of their other pages."""

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString

from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import leave
from config.console.parts.html import format_html
from config.console.parts.links import listing, page
from config.console.parts.moments import moment
from config.console.parts.pages import form_page
from config.console.parts.panel import acting, allowed, button, column, time_column
from config.console.parts.previews import is_asked, respond
from config.console.parts.sections import Section
from config.console.schedules.backfills.form import backfill_page, backfill_preview
from config.console.schedules.buttons import ScheduleButtons, find_schedule
from config.console.schedules.filters import KindFilter, StateFilter
from config.console.schedules.form import EditScheduleForm, NewScheduleForm, RuleForm
from config.console.schedules.page import sections_of
from config.console.schedules.preview import preview_asked, preview_of
from config.console.schedules.why import why_of_schedule, why_search
from config.console.schedules.words import COLOURS, state_of, wakes
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.edit import create_schedule, edit_schedule, fire_schedule, pause_schedule, resume_schedule
from triggers.schedules.preview import describe
from triggers.schedules.reminders import remind
from triggers.schedules.rows import RELATED


@admin.register(Schedule)
class SchedulePanel(ScheduleButtons):
    """Agents and tasks that run by the clock."""

    list_display = ("name", "state", "rule", "next_fire", "last_fire", "wakes")
    list_filter = (StateFilter, KindFilter, "catch_up")
    list_select_related = RELATED
    search_fields = ("task__name", "trigger__slug", "trigger__agent")
    search_help_text = "schedule, trigger or agent"
    ordering = (F("next_fire_at").asc(nulls_last=True), "pk")
    actions = ("pause_chosen", "resume_chosen", "fire_chosen")
    actions_detail = ("fire_now", "edit", "pause", "resume", "backfill", "why", "delete_schedule")
    own_pages = {
        "preview": "preview/",
        "why_search": "why/",
        "backfill_preview": "<path:object_id>/backfill/preview/",
    }

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        return super().get_queryset(request).select_related(*RELATED)

    # Lists

    @column("schedule")
    def name(self, schedule: Schedule) -> str:
        return str(schedule.task.name)

    @column("state", label=COLOURS)
    def state(self, schedule: Schedule) -> str:
        return state_of(schedule)

    @column("fires")
    def rule(self, schedule: Schedule) -> SafeString | str:
        words = describe(schedule)
        if schedule.task.enabled or not schedule.paused_note:
            return words
        return format_html('{}<br><span class="console-said">paused: {}</span>', words, schedule.paused_note)

    @column("next")
    def next_fire(self, schedule: Schedule) -> SafeString:
        return moment(schedule.next_fire_at if schedule.task.enabled else None)

    last_fire = time_column("last", "last_fire_at")

    @column("wakes")
    def wakes(self, schedule: Schedule) -> SafeString | str:
        return wakes(schedule)

    # Making and changing

    has_add_permission = allowed("triggers.add_schedule")
    has_backfill_permission = allowed("triggers.backfill_schedule")

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewScheduleForm(request.POST or None)
        if form.is_valid() and not is_asked(request) and (schedule := _create(form, acting(request))):
            messages.success(request, f"{schedule.task.name}: {describe(schedule)}.")
            return leave(request, page("triggers_schedule", schedule.pk))
        return self._form_page(request, form, "New schedule", "Create the schedule", listing("triggers_schedule"))

    @button("Edit", permissions=["triggers.change_schedule"], icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        schedule = find_schedule(object_id)
        form = EditScheduleForm(schedule, request.POST or None)
        back = page("triggers_schedule", object_id)
        if form.is_valid() and not is_asked(request) and _save(form, schedule, acting(request)):
            messages.success(request, "Saved.")
            return leave(request, back)
        return self._form_page(request, form, f"Edit {schedule.task.name}", "Save", back, schedule)

    def _form_page(
        self, request: HttpRequest, form: RuleForm, title: str, submit: str, back: str, schedule: Schedule | None = None
    ) -> HttpResponse:
        groups = form.groups(preview_of(form))
        return form_page(self, request, form, title=title, submit=submit, back=back, groups=groups, obj=schedule)

    def preview_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request) and not self.has_add_permission(request):
            raise PermissionDenied
        return respond(request, preview_asked(request))

    # Its other pages

    @button("Backfill", permissions=["triggers.backfill_schedule"], icon="history")
    def backfill(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return backfill_page(self, request, find_schedule(object_id))

    def backfill_preview_view(self, request: HttpRequest, object_id: str) -> HttpResponse:
        if not self.has_backfill_permission(request):
            raise PermissionDenied
        return respond(request, backfill_preview(request, find_schedule(object_id)))

    @button("Why?", permissions=["view"], icon="help")
    def why(self, request: HttpRequest, object_id: str) -> HttpResponse:
        return why_of_schedule(self, request, find_schedule(object_id))

    def why_search_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            raise PermissionDenied
        return why_search(self, request)

    def sections(self, request: HttpRequest, obj: Schedule) -> list[Section]:
        return sections_of(obj)

    # Many at once

    @admin.action(description="Pause", permissions=["pause"])
    def pause_chosen(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        carry_out(
            request, queryset, pause_schedule, done="paused", legal=Q(task__enabled=True), otherwise="already off"
        )

    @admin.action(description="Resume", permissions=["pause"])
    def resume_chosen(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        done, legal = "resumed, counting from now", Q(task__enabled=False)
        carry_out(request, queryset, resume_schedule, done=done, legal=legal, otherwise="already on")

    @admin.action(description="Run now", permissions=["fire"])
    def fire_chosen(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        legal = Q(trigger=None) | Q(trigger__enabled=True)
        carry_out(request, queryset, fire_schedule, done="fired", legal=legal, otherwise="their triggers are disabled")


def _create(form: NewScheduleForm, by: str) -> Schedule | None:
    try:
        with transaction.atomic():
            return _make(form, by)
    except RuleError as wrong:
        form.refuse(wrong)
        return None


def _make(form: NewScheduleForm, by: str) -> Schedule:
    (rule, policy), said = form.agreed, form.cleaned_data
    named = {"name": said["name"], "agent": said["agent"], "trigger": said["trigger"]}
    if policy.kind != "reminder":
        return create_schedule(rule=rule, policy=policy, by=by, **named)
    return edit_schedule(remind(when=rule, text=said["text"], by=by, **named), policy=policy, by=by)


def _save(form: EditScheduleForm, schedule: Schedule, by: str) -> bool:
    try:
        edit_schedule(schedule, rule=form.rule, policy=form.policy, by=by)
    except RuleError as wrong:
        form.refuse(wrong)
        return False
    return True
