"""The fields of a schedule's policy, as a form."""

from typing import Any
from zoneinfo import available_timezones

from django import forms
from django.urls import reverse
from django.utils.html import format_html

from config.console.parts import fields
from config.console.parts.json_field import JsonField
from config.console.parts.links import link
from config.console.parts.time_field import LocalTime
from triggers.models import ExclusionCalendar, Schedule

ZONES = [(name, name) for name in ["UTC", *sorted(available_timezones() - {"UTC", "localtime", "Factory"})]]
KINDS = [
    (Schedule.Kind.SCHEDULE, "schedule: wakes its agent at each fire"),
    (Schedule.Kind.HEARTBEAT, "heartbeat: its agent may set the time of the next wake"),
    (Schedule.Kind.REMINDER, "reminder: brings back a text at its time"),
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


class Duration(fields.CharField):
    """A duration as text; parsed by the schedule's policy."""

    def __init__(self, *, label: str, help_text: str) -> None:
        super().__init__(required=False, label=label, help_text=help_text)


class PolicyFields(forms.Form):
    """Named like the fields of `SchedulePolicy`, which parses the typed values; `text` is a reminder's data."""

    kind = fields.ChoiceField(choices=KINDS, initial=Schedule.Kind.SCHEDULE, label="Kind")
    pace_min = Duration(
        label="Fastest pace", help_text="Set the shortest interval that a heartbeat's agent may request, e.g. 5m."
    )
    pace_max = Duration(
        label="Slowest pace", help_text="Set the longest interval that a heartbeat's agent may request, e.g. 4h."
    )
    text = fields.TextField(required=False, label="Text", rows=2, help_text="Enter the text of a reminder.")

    catch_up = fields.ChoiceField(
        choices=Schedule.CatchUp.choices,
        initial=Schedule.CatchUp.LATEST,
        label="After an outage, fire",
        help_text="Choose which fires missed during an outage fire afterwards. The others are listed with a reason.",
    )
    catch_up_max = fields.IntegerField(
        required=False,
        min_value=1,
        label="Maximum missed fires",
        help_text="With catch-up “all”: fire at most this many missed times, newest first. Empty: no limit.",
    )
    catch_up_window = Duration(
        label="Maximum age", help_text="Do not fire times missed longer ago than this, e.g. 2h. Empty: no limit."
    )

    spread = Duration(
        label="Spread over",
        help_text="Delay the fires of this schedule by a constant part of this, e.g. 10m, so that many schedules of 09:00 do "
        "not start at once.",
    )
    jitter = Duration(label="Jitter up to", help_text="Delay each fire by a random amount up to this, e.g. 30s.")

    active_hours = fields.CharField(
        required=False,
        label="Active hours",
        help_text="Fire only within these, e.g. <code>mon-fri 09:00-17:00, sat 10:00-12:00</code> or "
        "<code>22:00-06:00</code>. Empty: at any time.",
    )
    active_zone = fields.ChoiceField(
        required=False,
        choices=[("", "the schedule's own"), *ZONES],
        label="Zone of active hours",
        help_text="Applies to active hours and excluded days.",
    )
    exclude = fields.MultipleChoiceField(required=False, label="Exclusion calendars")

    start = LocalTime(
        required=False, label="Start", help_text="Do not fire before; an interval counts from here. Empty: from now."
    )
    end = LocalTime(required=False, label="End", help_text="Do not fire from here on. Empty: no end.")
    max_fires = fields.IntegerField(
        required=False,
        min_value=1,
        label="Maximum fires",
        help_text="Stop for good after this many fires. Empty: no limit.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Not in the class body: there, `data` is the data the form was posted with.
        self.fields["data"] = JsonField(
            rows=3, label="Data (JSON)", help_text="Passed to its agent as <code>event.data.data</code>."
        )
        slugs = ExclusionCalendar.objects.order_by("slug").values_list("slug", flat=True)
        self.fields["exclude"].choices = [(slug, slug) for slug in slugs]  # type: ignore[attr-defined]
        self.fields["exclude"].help_text = format_html(
            "Do not fire on the days of these calendars, e.g. public holidays. {}",
            link(reverse("admin:triggers_exclusioncalendar_add"), "Create one"),
        )
