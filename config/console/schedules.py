from datetime import datetime
from typing import Any, cast
from zoneinfo import ZoneInfo

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.dataclasses import UnfoldAction
from unfold.enums import ActionVariant

from config.console.audit import entries_of
from config.console.bulk import carry_out
from config.console.dialogs import attempt, dialog, leave
from config.console.links import event_link, link, listing, page
from config.console.moments import distance, instant, moment
from config.console.pages import form_page
from config.console.panel import Panel, acting, button, column
from config.console.schedule_form import NewScheduleForm, RuleForm, rule_as_initial
from config.console.sections import Facts, Notice, Section, Table
from runs.alive import alive
from runs.audit import record
from runs.exceptions import RunError
from triggers.calendar import RuleError
from triggers.control import fire
from triggers.models import Schedule, Trigger
from triggers.rule_rows import rule_of
from triggers.schedule_policy import SchedulePolicy
from triggers.schedules import (
    create_schedule,
    describe,
    edit_schedule,
    parse_rule,
    pause_schedule,
    remove,
    resume_schedule,
    upcoming,
)

RELATED = ("task__crontab", "task__interval", "task__clocked", "task__solar", "trigger")


class StateFilter(admin.SimpleListFilter):
    title = "state"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: object) -> list[tuple[str, str]]:
        return [("on", "on"), ("off", "paused or done"), ("problem", "cannot fire")]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> QuerySet[Schedule]:
        match self.value():
            case "on":
                return queryset.filter(task__enabled=True, problem="")
            case "off":
                return queryset.filter(task__enabled=False)
            case "problem":
                return queryset.exclude(problem="")
        return queryset


@admin.register(Schedule)
class SchedulePanel(Panel):
    """What wakes agents by the clock."""

    list_display = ("name", "state", "rule", "next_fire", "last_fire", "wakes")
    list_filter = (StateFilter, "catch_up")
    list_select_related = RELATED
    search_fields = ("task__name", "trigger__slug", "trigger__agent")
    search_help_text = "schedule, trigger or agent"
    ordering = (F("next_fire_at").asc(nulls_last=True), "task__name")
    actions = ("pause_chosen", "resume_chosen", "fire_chosen")
    actions_detail = ("fire_now", "edit", "pause", "resume", "delete_schedule")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Schedule]:
        # Those without a trigger are ordinary periodic tasks, on a page of their own.
        return super().get_queryset(request).filter(trigger__isnull=False).select_related(*RELATED)  # type: ignore[no-any-return]

    # Lists

    @column("schedule")
    def name(self, schedule: Schedule) -> str:
        return str(schedule.task.name)

    @column(
        "state",
        label={
            "on": "success",
            "paused": "warning",
            "done": "default",
            "cannot fire": "danger",
            "trigger off": "warning",
        },
    )
    def state(self, schedule: Schedule) -> str:
        return state_of(schedule)

    @column("fires")
    def rule(self, schedule: Schedule) -> str:
        return describe(schedule)

    @column("next")
    def next_fire(self, schedule: Schedule) -> SafeString:
        return moment(schedule.next_fire_at if schedule.task.enabled else None)

    @column("last")
    def last_fire(self, schedule: Schedule) -> SafeString:
        return moment(schedule.last_fire_at)

    @column("wakes")
    def wakes(self, schedule: Schedule) -> SafeString:
        trigger = woken_by(schedule)
        return format_html("{} by {}", trigger.agent, link(page("triggers_trigger", trigger.pk), trigger.slug))

    # Making and changing

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("triggers.add_schedule")

    def has_edit_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("triggers.change_schedule")

    def has_pause_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("triggers.pause_trigger")

    def has_fire_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("triggers.fire_trigger")

    def has_remove_permission(self, request: HttpRequest, object_id: str | None = None) -> bool:
        return request.user.has_perm("triggers.delete_schedule")

    def add_view(
        self, request: HttpRequest, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        if not self.has_add_permission(request):
            raise PermissionDenied
        form = NewScheduleForm(request.POST or None)
        if form.is_valid() and (schedule := _create(form, acting(request))):
            messages.success(request, f"{schedule.task.name}: {describe(schedule)}.")
            return leave(request, page("triggers_schedule", schedule.pk))
        return _rule_page(self, request, form, "New schedule", "Create the schedule", listing("triggers_schedule"))

    @button("Edit", permissions=["edit"], icon="edit", url_path="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        schedule = _schedule(object_id)
        form = RuleForm(request.POST or None, initial=_initial(schedule))
        back = page("triggers_schedule", object_id)
        if form.is_valid() and _save(form, schedule, acting(request)):
            messages.success(request, "Saved.")
            return leave(request, back)
        return _rule_page(self, request, form, "Edit schedule", "Save", back, schedule)

    @button(
        "Run now",
        permissions=["fire"],
        icon="play_arrow",
        variant=ActionVariant.PRIMARY,
        url_path="fire",
        dialog=dialog("Run it now?", "Its trigger is fired by hand; the schedule goes on as it is.", "Run now"),
    )
    def fire_now(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        schedule = _schedule(object_id)
        try:
            event_id = fire(woken_by(schedule), by=acting(request))
        except RunError as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(request, format_html("Fired: event {}.", event_link(event_id)))
        return leave(request, page("triggers_schedule", object_id))

    @button(
        "Pause",
        permissions=["pause"],
        icon="pause",
        url_path="pause",
        dialog=dialog("Pause this schedule?", "What falls into the pause is not caught up.", "Pause"),
    )
    def pause(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        attempt(request, lambda: pause_schedule(_schedule(object_id), by=acting(request)), done="Paused.")
        return leave(request, page("triggers_schedule", object_id))

    @button(
        "Resume",
        permissions=["pause"],
        icon="resume",
        variant=ActionVariant.PRIMARY,
        url_path="resume",
        dialog=dialog("Resume this schedule?", "It counts from now.", "Resume"),
    )
    def resume(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        attempt(request, lambda: resume_schedule(_schedule(object_id), by=acting(request)), done="Resumed.")
        return leave(request, page("triggers_schedule", object_id))

    @button(
        "Delete",
        permissions=["remove"],
        icon="delete",
        variant=ActionVariant.DANGER,
        url_path="remove",
        dialog=dialog("Delete this schedule?", "Its trigger, its events and its runs stay.", "Delete the schedule"),
    )
    def delete_schedule(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        schedule = _schedule(object_id)
        with transaction.atomic():
            record(acting(request), "delete", schedule, name=schedule.task.name)
            remove(schedule)
        messages.success(request, f"{schedule.task.name} is deleted.")
        return leave(request, listing("triggers_schedule"))

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[UnfoldAction]:
        schedule = Schedule.objects.select_related("task", "trigger").filter(pk=object_id).first()
        if schedule is None or schedule.trigger is None:
            return []
        hidden = {"pause" if not schedule.task.enabled else "resume"}
        if schedule.trigger.declared is not None:
            hidden.add("delete_schedule")  # the next deploy would bring it back
        names = {f"triggers_schedule_{name}" for name in hidden}
        actions = super().get_actions_detail(request, object_id)
        return [one for one in actions if one.action_name not in names]

    @admin.action(description="Pause", permissions=["pause"])
    def pause_chosen(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        carry_out(
            request,
            queryset,
            lambda schedule: pause_schedule(schedule, by=acting(request)),
            done="paused",
            legal=Q(task__enabled=True),
            otherwise="they are off already",
        )

    @admin.action(description="Resume", permissions=["pause"])
    def resume_chosen(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        carry_out(
            request,
            queryset,
            lambda schedule: resume_schedule(schedule, by=acting(request)),
            done="resumed, counting from now",
            legal=Q(task__enabled=False),
            otherwise="they are on already",
        )

    @admin.action(description="Run now", permissions=["fire"])
    def fire_chosen(self, request: HttpRequest, queryset: QuerySet[Schedule]) -> None:
        carry_out(
            request,
            queryset,
            lambda schedule: fire(woken_by(schedule), by=acting(request)),
            done="fired",
            legal=Q(trigger__enabled=True),
            otherwise="their triggers are disabled",
        )

    # One schedule

    def sections(self, request: HttpRequest, obj: Schedule) -> list[Section]:
        trigger = woken_by(obj)
        return [
            _notice(obj),
            Facts(
                rows=[
                    ("Fires", describe(obj)),
                    ("Wakes", f"agent {trigger.agent}"),
                    ("Trigger", link(page("triggers_trigger", trigger.pk), trigger.slug)),
                    ("After an outage", obj.get_catch_up_display()),
                    ("Last fire", moment(obj.last_fire_at)),
                    ("Counted from", obj.anchor_at and moment(obj.anchor_at)),
                    ("Last edit", moment(obj.edited_at)),
                    ("Its ticks", link(listing("triggers_event", q=obj.task.name), "events")),
                    ("Its runs", link(listing("runs_run", q=trigger.slug), "list")),
                ]
            ),
            Table(
                title="Next fires",
                headers=("In its own zone", "", "In your zone"),
                rows=[(in_own_zone(at), distance(at), instant(at)) for at in upcoming(obj)],
                empty="None is planned.",
            ),
            entries_of("schedule", obj.pk),
        ]


def woken_by(schedule: Schedule) -> Trigger:
    """Its trigger, which every schedule of this page has: see `get_queryset`."""
    return cast(Trigger, schedule.trigger)


def state_of(schedule: Schedule) -> str:
    if not schedule.task.enabled:
        return "done" if schedule.task.one_off and schedule.last_fire_at else "paused"
    if schedule.problem:
        return "cannot fire"
    if schedule.trigger and schedule.trigger.status != "active":
        return "trigger off"
    return "on"


def in_own_zone(at: datetime) -> str:
    zone = at.tzinfo.key if isinstance(at.tzinfo, ZoneInfo) else at.tzname()
    return f"{at:%a %d %b %Y, %H:%M:%S} {zone}"


def _notice(schedule: Schedule) -> Notice:
    trigger = woken_by(schedule)
    match state_of(schedule):
        case "done":
            return Notice(text="It has fired, and was to fire once.")
        case "paused":
            return Notice(text="Paused: it does not fire.", level="warning")
        case "cannot fire":
            return Notice(text=f"It cannot fire: {schedule.problem}", level="bad", details=["Edit its rule."])
        case "trigger off":
            what = "are kept until it is resumed" if trigger.status == "paused" else "come to nothing"
            return Notice(text=f"Its trigger {trigger.slug} is {trigger.status}: its ticks {what}.", level="warning")
    if not alive().filter(kind="beat").exists():
        return Notice(
            text="No beat is alive, so nothing fires.", level="bad", details=["Start `celery -A config beat`."]
        )
    if schedule.next_fire_at is None:
        return Notice(
            text="Its next fire is being worked out by beat." if schedule.stale else "It will not fire again."
        )
    return Notice(text=f"Fires {distance(schedule.next_fire_at)}.", level="good")


def _schedule(pk: str) -> Schedule:
    return get_object_or_404(Schedule.objects.select_related(*RELATED), pk=pk, trigger__isnull=False)


def _initial(schedule: Schedule) -> dict[str, Any]:
    try:
        rule = rule_as_initial(rule_of(schedule.task, schedule.anchor_at))
    except RuleError:
        rule = {"choice": "cron"}
    return {**rule, "catch_up": schedule.catch_up}


def _create(form: NewScheduleForm, by: str) -> Schedule | None:
    cleaned = form.cleaned_data
    try:
        return create_schedule(
            name=cleaned["name"],
            agent=cleaned["agent"],
            trigger=cleaned["trigger"],
            rule=parse_rule(**cleaned["rule"]),
            policy=SchedulePolicy(catch_up=cleaned["catch_up"]),
            by=by,
        )
    except RuleError as error:
        form.add_error(None, str(error))
        return None


def _save(form: RuleForm, schedule: Schedule, by: str) -> bool:
    # An unchanged rule is not written: an interval would begin to count anew.
    wanted = {"catch_up": schedule.catch_up, **rule_as_initial(parse_rule(**form.cleaned_data["rule"]))}
    rule = parse_rule(**form.cleaned_data["rule"]) if wanted != _initial(schedule) else None
    policy = SchedulePolicy.parse({"catch_up": form.cleaned_data["catch_up"]}, SchedulePolicy.of(schedule))
    try:
        edit_schedule(schedule, rule=rule, policy=policy, by=by)
    except RuleError as error:
        form.add_error(None, str(error))
        return False
    return True


def _rule_page(
    panel: Panel,
    request: HttpRequest,
    form: RuleForm,
    title: str,
    submit: str,
    back: str,
    schedule: Schedule | None = None,
) -> HttpResponse:
    groups = form.groups()
    return form_page(
        panel, request, form, title=title, submit=submit, back=back, groups=groups, choice="choice", obj=schedule
    )
