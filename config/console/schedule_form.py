from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import (
    UnfoldAdminSelectWidget,
    UnfoldAdminTextInputWidget,
)

from agents.registry import all_agents
from config.console.pages import Group
from triggers.calendar import Clocked, Cron, Interval, Rule, RuleError, instant_of
from triggers.models import Schedule, Trigger
from triggers.schedules import parse_rule

KINDS = {"cron": "by crontab", "every": "every so often", "at": "once"}


class RuleForm(forms.Form):
    """When it fires, and what becomes of fires that were missed."""

    choice = forms.ChoiceField(
        label="Fires", choices=list(KINDS.items()), widget=UnfoldAdminSelectWidget(attrs={"x-model": "choice"})
    )
    cron = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        label="Crontab",
        help_text="Minute, hour, day of month, month, day of week, such as <code>0 9 * * mon-fri</code>",
    )
    tz = forms.ChoiceField(required=False, label="Zone", widget=UnfoldAdminSelectWidget)
    every = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        label="Every",
        help_text="Such as <code>30s</code>, <code>15m</code>, <code>1h30m</code> or <code>1d</code>, counted from now",
    )
    at = forms.DateTimeField(
        required=False,
        label="At",
        widget=UnfoldAdminTextInputWidget(attrs={"type": "datetime-local", "step": "1"}),
        input_formats=["%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%d %H:%M:%S"],
    )
    at_tz = forms.ChoiceField(required=False, label="In the zone", widget=UnfoldAdminSelectWidget)
    catch_up = forms.ChoiceField(
        choices=Schedule.CatchUp.choices,
        widget=UnfoldAdminSelectWidget,
        label="After an outage, fire",
        help_text="What becomes of the fires that fell into it",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        zones = [(name, name) for name in ["UTC", *sorted(available_timezones() - {"UTC", "localtime"})]]
        for name in ("tz", "at_tz"):
            self.fields[name].choices = zones  # type: ignore[attr-defined]
            self.fields[name].initial = "UTC"

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        kind = cleaned.get("choice")
        if not kind or self.errors.get(kind):
            return cleaned
        if not cleaned.get(kind):
            self.add_error(kind, "Say when.")
            return cleaned
        cleaned["rule"] = _rule(kind, cleaned)
        try:
            parse_rule(**cleaned["rule"])
        except RuleError as error:
            self.add_error(kind, str(error))
        return cleaned

    def groups(self) -> list[Group]:
        return [
            Group(fields=[self["choice"]]),
            Group(fields=[self["cron"], self["tz"]], when=["cron"]),
            Group(fields=[self["every"]], when=["every"]),
            Group(fields=[self["at"], self["at_tz"]], when=["at"]),
            Group(fields=[self["catch_up"]]),
        ]


class NewScheduleForm(RuleForm):
    """A schedule, and what it wakes."""

    name = forms.CharField(max_length=200, widget=UnfoldAdminTextInputWidget)
    agent = forms.ChoiceField(
        required=False,
        widget=UnfoldAdminSelectWidget,
        label="Wakes the agent",
        help_text="By a trigger of its own, which skips a fire while a run of it is live.",
    )
    trigger = forms.ModelChoiceField(
        required=False,
        queryset=Trigger.objects.order_by("slug"),
        widget=UnfoldAdminSelectWidget,
        empty_label="–",
        label="or an existing trigger",
        help_text="With its key, overlap and policy.",
    )
    field_order = ("name", "agent", "trigger")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].choices = [("", "–"), *((agent.name, agent.name) for agent in all_agents())]  # type: ignore[attr-defined]
        self.initial.setdefault("choice", "cron")

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if bool(cleaned.get("agent")) == bool(cleaned.get("trigger")):
            raise ValidationError("Choose an agent or an existing trigger, one of them.")
        return cleaned

    def groups(self) -> list[Group]:
        return [Group(fields=[self["name"], self["agent"], self["trigger"]]), *super().groups()]


def rule_as_initial(rule: Rule) -> dict[str, Any]:
    """The form's values for a rule that stands already."""
    match rule:
        case Cron():
            return {"choice": "cron", "cron": rule.text, "tz": str(rule.zone)}
        case Interval():
            return {"choice": "every", "every": f"{rule.every.total_seconds():g}s"}
        case Clocked():
            return {"choice": "at", "at": f"{rule.at:%Y-%m-%dT%H:%M:%S}", "at_tz": "UTC"}


def _rule(kind: str, cleaned: dict[str, Any]) -> dict[str, Any]:
    if kind == "cron":
        return {"cron": cleaned["cron"], "tz": cleaned.get("tz") or "UTC"}
    if kind == "every":
        return {"every": cleaned["every"].replace(" ", "")}
    return {"at": _instant(cleaned["at"], cleaned.get("at_tz") or "UTC")}


def _instant(at: datetime, zone: str) -> datetime:
    # The field made it aware in the site's zone; the operator meant the one chosen.
    return instant_of(at.replace(tzinfo=None), ZoneInfo(zone))
