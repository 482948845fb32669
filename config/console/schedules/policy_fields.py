"""The terms of a schedule as fields of a form, one for each of its policy."""

from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.urls import reverse
from django.utils.html import format_html
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from config.console.parts.json_field import JsonField
from config.console.parts.links import link
from config.console.parts.time_field import LocalTime
from triggers.models import ExclusionCalendar, Schedule

ZONES = [(name, name) for name in ["UTC", *sorted(available_timezones() - {"UTC", "localtime", "Factory"})]]
KINDS = [
    (Schedule.Kind.SCHEDULE, "schedule: it wakes its agent whenever it fires"),
    (Schedule.Kind.HEARTBEAT, "heartbeat: its agent may set when it is woken next"),
    (Schedule.Kind.REMINDER, "reminder: a text comes back at its time"),
]


POLICY = (
    "kind",
    "pace_min",
    "pace_max",
    "catch_up",
    "catch_up_max",
    "catch_up_window",
    "spread",
    "jitter",
    "active_hours",
    "active_zone",
    "exclude",
    "start",
    "end",
    "max_fires",
    "data",
)


class Duration(forms.CharField):
    """A length of time, as one writes it; read by the schedule's policy."""

    def __init__(self, *, label: str, help_text: str) -> None:
        super().__init__(required=False, label=label, help_text=help_text, widget=UnfoldAdminTextInputWidget)


class PolicyFields(forms.Form):
    """Named as the fields of `SchedulePolicy`, which reads what is typed; `text` is a reminder's data."""

    kind = forms.ChoiceField(
        choices=KINDS, initial=Schedule.Kind.SCHEDULE, widget=UnfoldAdminSelectWidget, label="Kind"
    )
    pace_min = Duration(
        label="Fastest pace",
        help_text="Of a heartbeat: its agent may not ask to be woken sooner than this, such as 5m.",
    )
    pace_max = Duration(
        label="Slowest pace", help_text="Of a heartbeat: its agent may not ask to be woken later than this, such as 4h."
    )
    text = forms.CharField(
        required=False,
        label="Text",
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        help_text="Of a reminder: what comes back.",
    )

    catch_up = forms.ChoiceField(
        choices=Schedule.CatchUp.choices,
        initial=Schedule.CatchUp.LATEST,
        widget=UnfoldAdminSelectWidget,
        label="After an outage, fire",
        help_text="What becomes of the fires that fell into it; each one that does not fire is listed with its reason.",
    )
    catch_up_max = forms.IntegerField(
        required=False,
        min_value=1,
        widget=UnfoldAdminIntegerFieldWidget,
        label="At most",
        help_text="So many of the missed fires, the newest ones, where every one of them is to fire. Empty: no limit.",
    )
    catch_up_window = Duration(
        label="Not older than",
        help_text="What was missed longer ago than this does not fire any more, such as 2h. Empty: however long ago.",
    )

    spread = Duration(
        label="Spread over",
        help_text="Many schedules for 09:00 need not start at once: each comes later by a part of this, such as 10m, "
        "always by the same.",
    )
    jitter = Duration(
        label="Jitter up to",
        help_text="Each fire comes later by another part of this, such as 30s, so that nobody can tell it from the clock.",
    )

    active_hours = forms.CharField(
        required=False,
        widget=UnfoldAdminTextInputWidget,
        label="Active hours",
        help_text="It fires within these only, such as <code>mon-fri 09:00-17:00, sat 10:00-12:00</code> or "
        "<code>22:00-06:00</code>. Empty: at any time.",
    )
    active_zone = forms.ChoiceField(
        required=False,
        choices=[("", "the schedule's own"), *ZONES],
        widget=UnfoldAdminSelectWidget,
        label="In the zone",
        help_text="Of active hours and excluded days.",
    )
    exclude = forms.MultipleChoiceField(
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        label="Not on the days of",
    )

    start = LocalTime(
        required=False, label="From", help_text="Nothing fires before; an interval counts from here. Empty: from now."
    )
    end = LocalTime(required=False, label="Until", help_text="Nothing fires from here on. Empty: for ever.")
    max_fires = forms.IntegerField(
        required=False,
        min_value=1,
        widget=UnfoldAdminIntegerFieldWidget,
        label="At most so many fires",
        help_text="It retires after them. Empty: no limit.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Not in the class, where `data` is what the form was sent with.
        self.fields["data"] = JsonField(
            rows=3, label="Data (JSON)", help_text="What its agent finds in <code>event.data.data</code>."
        )
        slugs = ExclusionCalendar.objects.order_by("slug").values_list("slug", flat=True)
        self.fields["exclude"].choices = [(slug, slug) for slug in slugs]  # type: ignore[attr-defined]
        self.fields["exclude"].help_text = format_html(
            "Calendars of days on which it does not fire, such as public holidays. {}",
            link(reverse("admin:triggers_exclusioncalendar_add"), "Make one"),
        )
