"""The buttons of a trigger's page: each opens a dialog and calls one service."""

from collections.abc import Mapping
from typing import Any, Literal

from django.http import HttpRequest
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize

from config.console.notifications.report_to_me import asked_report
from config.console.parts.dialogs import dialog
from config.console.parts.html import format_html
from config.console.parts.links import event_link
from config.console.parts.panel import Panel, allowed
from config.console.parts.service_button import service_button
from config.console.triggers.dialogs import RESUMED, FireForm, PauseForm, RedispatchForm, ResumeForm, a_day_ago
from triggers.declarations.overrides import reset_overrides
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import offer_errors
from triggers.models import Decision, Trigger
from triggers.sources.manual import fire

RESET = dialog("Reset to the code's declaration?", "Discards all changes by operators.", "Reset")
FIRE = dialog("Fire now?", "Creates an event for this trigger only; its filter is ignored.", "Fire", FireForm)
PAUSE = dialog("Pause this trigger?", "Its events are held until it is resumed.", "Pause", PauseForm)
RESUME = dialog("Resume this trigger?", "Its count of failures restarts at zero.", "Resume", ResumeForm)
REDISPATCH = dialog(
    "Dispatch events with errors again?",
    "Uses the current filter, key and input. An event that already has a run of this trigger starts no second run.",
    "Dispatch again",
    RedispatchForm,
)


class TriggerButtons(Panel):
    has_pause_permission = allowed("triggers.pause_trigger")
    has_fire_permission = allowed("triggers.fire_trigger")
    has_replay_permission = allowed("triggers.replay_event")

    @service_button(
        "Reset to the code", "triggers.change_trigger", RESET, icon="undo", done="Reset to the code's declaration."
    )
    def reset(self, object_id: str, by: str) -> None:
        trigger = get_object_or_404(Trigger, pk=object_id)
        reset_overrides(trigger, trigger.overrides, by=by)

    @service_button("Fire now", "triggers.fire_trigger", FIRE, icon="play_arrow", url_path="fire", variant="primary")
    def fire_now(self, object_id: str, by: str, data: Any, report: bool, report_to: str) -> str:
        trigger = get_object_or_404(Trigger, pk=object_id)
        event_id = fire(trigger, data=data, report=asked_report(report, report_to, by=by), by=by)
        return format_html("Fired: event {}.", event_link(event_id))

    @service_button("Pause", "triggers.pause_trigger", PAUSE, icon="pause", variant="danger", done="Paused.")
    def pause(self, object_id: str, by: str, reason: str) -> None:
        pause(get_object_or_404(Trigger, pk=object_id), reason=reason, by=by)

    @service_button("Resume", "triggers.pause_trigger", RESUME, icon="resume", variant="success", done=RESUMED)
    def resume(self, object_id: str, by: str, held: Literal["run", "drop"]) -> None:
        resume(get_object_or_404(Trigger, pk=object_id), held=held, by=by)

    @service_button("Dispatch again", "triggers.replay_event", REDISPATCH, icon="replay")
    def redispatch(self, object_id: str, by: str, errors: str) -> str:
        trigger = get_object_or_404(Trigger, pk=object_id)
        found = offer_errors(trigger=trigger, since=a_day_ago() if errors == "lately" else None, by=by)
        return f"{found} event{pluralize(found)} will be dispatched again, in batches."

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        trigger = Trigger.objects.filter(pk=object_id).first()
        if trigger is None:
            return dict.fromkeys(self.actions_detail, False)
        return {
            "pause": not trigger.is_paused,
            "resume": trigger.is_paused,
            "fire_now": trigger.enabled,
            "redispatch": trigger.enabled and trigger.decisions.filter(outcome=Decision.Outcome.ERROR).exists(),
            "reset": trigger.declared is not None and bool(trigger.overrides),
        }
