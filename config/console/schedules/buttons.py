"""The buttons of a schedule's page: each opens a dialog and calls one service."""

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.dataclasses import UnfoldAction
from unfold.enums import ActionVariant
from unfold.forms import BaseDialogForm

from config.console.parts import fields
from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.html import format_html
from config.console.parts.links import event_link, listing, page
from config.console.parts.panel import acting, allowed, button
from runs.exceptions import RunError
from triggers.exceptions import RuleError
from triggers.models import Schedule
from triggers.schedules.edit import delete_schedule, fire_schedule, is_declared, pause_schedule, resume_schedule
from triggers.schedules.rows import RELATED


class PauseForm(BaseDialogForm):  # type: ignore[misc]
    note = fields.CharField(
        required=False, max_length=300, label="Reason", help_text="Shown on the schedule's page while it is paused."
    )


PAUSE = dialog("Pause this schedule?", "Times during the pause do not fire and are not caught up.", "Pause", PauseForm)
RESUME = dialog("Resume this schedule?", "It counts from now. Times during the pause stay skipped.", "Resume")
RUN_NOW = dialog("Run it now?", "Fires once now. The next planned fires do not change.", "Run now")
DELETE = dialog(
    "Delete this schedule?", "Keeps its trigger, events and runs; deletes its history.", "Delete the schedule"
)


def find_schedule(pk: str) -> Schedule:
    return get_object_or_404(Schedule.objects.select_related(*RELATED), pk=pk)


class ScheduleButtons:
    """Mixin for the panel of schedules."""

    has_pause_permission = allowed("triggers.pause_trigger")
    has_fire_permission = allowed("triggers.fire_trigger")
    has_remove_permission = allowed("triggers.delete_schedule")

    @button(
        "Run now",
        permissions=["fire"],
        icon="play_arrow",
        variant=ActionVariant.PRIMARY,
        url_path="fire",
        dialog=RUN_NOW,
    )
    def fire_now(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        try:
            event_id = fire_schedule(find_schedule(object_id), by=acting(request))
        except (RunError, RuleError) as refusal:
            messages.error(request, str(refusal))
        else:
            told = format_html("Fired: event {}.", event_link(event_id)) if event_id else "Its task was sent."
            messages.success(request, told)
        return leave(request, page("triggers_schedule", object_id))

    @button("Pause", permissions=["pause"], icon="pause", url_path="pause", dialog=PAUSE)
    def pause(self, request: HttpRequest, form: PauseForm, object_id: str) -> HttpResponse:
        note, back = form.cleaned_data["note"], page("triggers_schedule", object_id)
        act = partial(pause_schedule, find_schedule(object_id), by=acting(request), note=note)
        return attempt(request, act, done="Paused.", back=back)

    @button(
        "Resume", permissions=["pause"], icon="resume", variant=ActionVariant.PRIMARY, url_path="resume", dialog=RESUME
    )
    def resume(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        act = partial(resume_schedule, find_schedule(object_id), by=acting(request))
        return attempt(request, act, done="Resumed.", back=page("triggers_schedule", object_id))

    @button(
        "Delete", permissions=["remove"], icon="delete", variant=ActionVariant.DANGER, url_path="remove", dialog=DELETE
    )
    def delete_schedule(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        schedule = find_schedule(object_id)
        done, back = f"{schedule.task.name} is deleted.", listing("triggers_schedule")
        return attempt(request, lambda: delete_schedule(schedule, by=acting(request)), done=done, back=back)

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[UnfoldAction]:
        schedule = Schedule.objects.select_related("task", "trigger").filter(pk=object_id).first()
        if schedule is None:
            return []
        hidden = {f"triggers_schedule_{name}" for name in _impossible(schedule)}
        actions = super().get_actions_detail(request, object_id)  # type: ignore[misc]
        return [one for one in actions if one.action_name not in hidden]


def _impossible(schedule: Schedule) -> set[str]:
    """Buttons that have no effect in the schedule's state."""
    hidden = {"pause" if not schedule.task.enabled else "resume"}
    if schedule.trigger is None:
        # An ordinary periodic task has its own form and no runs to backfill.
        hidden |= {"edit", "delete_schedule", "backfill"}
    if is_declared(schedule):
        hidden.add("delete_schedule")  # the next deploy would create it again
    if schedule.kind == Schedule.Kind.HEARTBEAT:
        hidden.add("backfill")  # a heartbeat checks the current state, so there is nothing to backfill
    return hidden
