"""The buttons of a trigger's page: each opens a dialog and calls one service."""

from functools import partial
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize
from unfold.dataclasses import UnfoldAction
from unfold.enums import ActionVariant

from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.html import format_html
from config.console.parts.links import event_link, page
from config.console.parts.panel import Panel, acting, allowed, button
from config.console.triggers.dialogs import RESUMED, FireForm, PauseForm, RedispatchForm, ResumeForm, a_day_ago
from runs.exceptions import RunError
from triggers.declarations.overrides import reset_overrides
from triggers.dispatch.hold import pause, resume
from triggers.dispatch.offers import offer_errors
from triggers.models import Decision, Trigger
from triggers.sources.manual import fire


class TriggerButtons(Panel):
    has_edit_permission = allowed("triggers.change_trigger")
    has_pause_permission = allowed("triggers.pause_trigger")
    has_fire_permission = allowed("triggers.fire_trigger")
    has_replay_permission = allowed("triggers.replay_event")

    @button(
        "Reset to the code",
        permissions=["edit"],
        icon="undo",
        url_path="reset",
        dialog=dialog("Reset to the code's declaration?", "Discards all changes by operators.", "Reset"),
    )
    def reset(self, request: HttpRequest, form: Any, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        act = partial(reset_overrides, trigger, trigger.overrides, by=acting(request))
        done, back = "Reset to the code's declaration.", page("triggers_trigger", object_id)
        return attempt(request, act, done=done, back=back)

    @button(
        "Fire now",
        permissions=["fire"],
        icon="play_arrow",
        variant=ActionVariant.PRIMARY,
        url_path="fire",
        dialog=dialog("Fire now?", "Creates an event for this trigger only; its filter is ignored.", "Fire", FireForm),
    )
    def fire_now(self, request: HttpRequest, form: FireForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        try:
            event_id = fire(trigger, data=form.cleaned_data["data"], by=acting(request))
        except RunError as refusal:
            messages.error(request, str(refusal))
        else:
            messages.success(request, format_html("Fired: event {}.", event_link(event_id)))
        return leave(request, page("triggers_trigger", object_id))

    @button(
        "Pause",
        permissions=["pause"],
        icon="pause",
        variant=ActionVariant.DANGER,
        url_path="pause",
        dialog=dialog("Pause this trigger?", "Its events are held until it is resumed.", "Pause", PauseForm),
    )
    def pause(self, request: HttpRequest, form: PauseForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        act = partial(pause, trigger, reason=form.cleaned_data["reason"], by=acting(request))
        return attempt(request, act, done="Paused.", back=page("triggers_trigger", object_id))

    @button(
        "Resume",
        permissions=["pause"],
        icon="resume",
        variant=ActionVariant.SUCCESS,
        url_path="resume",
        dialog=dialog("Resume this trigger?", "Its count of failures restarts at zero.", "Resume", ResumeForm),
    )
    def resume(self, request: HttpRequest, form: ResumeForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        act = partial(resume, trigger, held=form.cleaned_data["held"], by=acting(request))
        return attempt(request, act, done=RESUMED, back=page("triggers_trigger", object_id))

    @button(
        "Dispatch again",
        permissions=["replay"],
        icon="replay",
        url_path="redispatch",
        dialog=dialog(
            "Dispatch events with errors again?",
            "Uses the current filter, key and input. An event that already has a run of this trigger starts no second run.",
            "Dispatch again",
            RedispatchForm,
        ),
    )
    def redispatch(self, request: HttpRequest, form: RedispatchForm, object_id: str) -> HttpResponse:
        trigger = get_object_or_404(Trigger, pk=object_id)
        since = a_day_ago() if form.cleaned_data["errors"] == "lately" else None
        found = offer_errors(trigger=trigger, since=since, by=acting(request))
        messages.success(request, f"{found} event{pluralize(found)} will be dispatched again, in batches.")
        return leave(request, page("triggers_trigger", object_id))

    def get_actions_detail(self, request: HttpRequest, object_id: str) -> list[UnfoldAction]:
        trigger = Trigger.objects.filter(pk=object_id).first()
        if trigger is None:
            return []
        hidden = {"pause"} if trigger.is_paused else {"resume"}
        if not trigger.enabled:
            hidden.add("fire_now")
        if not trigger.enabled or not trigger.decisions.filter(outcome=Decision.Outcome.ERROR).exists():
            hidden.add("redispatch")
        if trigger.declared is None or not trigger.overrides:
            hidden.add("reset")
        names = {f"triggers_trigger_{name}" for name in hidden}
        actions = super().get_actions_detail(request, object_id)
        return [one for one in actions if one.action_name not in names]
