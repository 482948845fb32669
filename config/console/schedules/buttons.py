"""The buttons of a schedule's page: each opens a dialog and calls one service."""

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.forms import BaseDialogForm

from config.console.notifications.report_to_me import ReportToMe, asked_report
from config.console.parts import fields
from config.console.parts.dialogs import dialog, leave
from config.console.parts.html import format_html
from config.console.parts.links import event_link, page
from config.console.parts.panel import Panel, acting, allowed, button
from config.console.parts.service_button import service_button
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
RUN_NOW = dialog("Run it now?", "Fires once now. The next planned fires do not change.", "Run now", ReportToMe)
DELETE = dialog(
    "Delete this schedule?", "Keeps its trigger, events and runs; deletes its history.", "Delete the schedule"
)


def find_schedule(pk: str) -> Schedule:
    return get_object_or_404(Schedule.objects.select_related(*RELATED), pk=pk)


class ScheduleButtons(Panel):
    has_pause_permission = allowed("triggers.pause_trigger")
    has_fire_permission = allowed("triggers.fire_trigger")

    @button(
        "Run now",
        permissions=["triggers.fire_trigger"],
        icon="play_arrow",
        variant="primary",
        url_path="fire",
        dialog=RUN_NOW,
    )
    def fire_now(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        by, asked = acting(request), form.cleaned_data
        try:
            report = asked_report(asked["report"], asked["report_to"], by=by)
            event_id = fire_schedule(find_schedule(object_id), report=report, by=by)
        except (RunError, RuleError) as refusal:
            messages.error(request, str(refusal))
        else:
            told = format_html("Fired: event {}.", event_link(event_id)) if event_id else "Its task was sent."
            messages.success(request, told)
        return leave(request, page("triggers_schedule", object_id))

    @service_button("Pause", "triggers.pause_trigger", PAUSE, icon="pause", done="Paused.")
    def pause(self, object_id: str, by: str, note: str) -> None:
        pause_schedule(find_schedule(object_id), by=by, note=note)

    @service_button("Resume", "triggers.pause_trigger", RESUME, icon="resume", variant="primary", done="Resumed.")
    def resume(self, object_id: str, by: str) -> None:
        resume_schedule(find_schedule(object_id), by=by)

    @service_button(
        "Delete", "triggers.delete_schedule", DELETE, icon="delete", url_path="remove", variant="danger", to_list=True
    )
    def delete_schedule(self, object_id: str, by: str) -> str:
        schedule = find_schedule(object_id)
        delete_schedule(schedule, by=by)
        return f"{schedule.task.name} is deleted."

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        schedule = Schedule.objects.select_related("task", "trigger").filter(pk=object_id).first()
        if schedule is None:
            return dict.fromkeys(self.actions_detail, False)
        # An ordinary periodic task has its own form and no runs to backfill.
        has_trigger = schedule.trigger is not None
        return {
            "pause": schedule.task.enabled,
            "resume": not schedule.task.enabled,
            "edit": has_trigger,
            "delete_schedule": has_trigger and not is_declared(schedule),  # the next deploy would create it again
            # A heartbeat checks the current state, so there is nothing to backfill.
            "backfill": has_trigger and schedule.kind != Schedule.Kind.HEARTBEAT,
        }
