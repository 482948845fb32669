"""What an operator says of a schedule: when it fires, in words, and the rest in groups that open when they are needed."""

from datetime import timedelta
from typing import Any, cast
from zoneinfo import ZoneInfo, available_timezones

from django import forms
from django.forms.boundfield import BoundField
from django.urls import reverse
from django.utils.html import format_html
from unfold.widgets import (
    UnfoldAdminCheckboxSelectMultipleWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from agents.registry import all_agents
from config.console.json_field import JsonField
from config.console.links import link
from config.console.local_field import FORMAT, LocalTime
from config.console.pages import Group
from config.console.schedule_words import zone_of_schedule
from config.console.sections import Section
from triggers.calendar import Cron, Interval, Rule, RuleError, instant_of
from triggers.models import ExclusionCalendar, Schedule, Trigger
from triggers.rule_rows import rule_of
from triggers.schedule_policy import SchedulePolicy
from triggers.words import read_rule

ZONES = [(name, name) for name in ["UTC", *sorted(available_timezones() - {"UTC", "localtime", "Factory"})]]
KINDS = [
    (Schedule.Kind.SCHEDULE, "schedule: it wakes its agent whenever it fires"),
    (Schedule.Kind.HEARTBEAT, "heartbeat: its agent may set when it is woken next"),
    (Schedule.Kind.REMINDER, "reminder: a text comes back at its time"),
]


class Duration(forms.CharField):
    """A length of time, as one writes it; read by the schedule's policy."""

    def __init__(self, *, label: str, help_text: str) -> None:
        super().__init__(required=False, label=label, help_text=help_text, widget=UnfoldAdminTextInputWidget)


class RuleForm(forms.Form):
    """When it fires, and on what terms."""

    when = forms.CharField(
        label="When",
        max_length=200,
        widget=UnfoldAdminTextInputWidget(
            attrs={"placeholder": "every weekday at 09:00", "autocomplete": "off", "spellcheck": "false"}
        ),
        help_text="In words or as a crontab: <code>every weekday at 09:00</code> · <code>every 30m</code> · "
        "<code>0 9 * * mon-fri</code> · <code>at 2026-12-01T09:00</code> · <code>in 20 minutes</code>",
    )
    tz = forms.ChoiceField(
        label="Zone",
        choices=ZONES,
        initial="UTC",
        widget=UnfoldAdminSelectWidget,
        help_text="Whose clock these times are read from. An interval (every 30m) does not depend on it.",
    )

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
        self.rule: Rule | None = None
        self.policy: SchedulePolicy | None = None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        self.rule = self._read_rule(cleaned)
        self.policy = self._read_policy(cleaned)
        return cleaned

    @property
    def agreed(self) -> tuple[Rule, SchedulePolicy, dict[str, Any]]:
        """What a valid form says: the rule, the policy, and the rest."""
        return cast(Rule, self.rule), cast(SchedulePolicy, self.policy), self.cleaned_data

    @property
    def zone(self) -> ZoneInfo:
        """The zone it was sent with, or begins with."""
        name = self["tz"].value() or "UTC"
        return ZoneInfo(name if name in dict(ZONES) else "UTC")

    def groups(self, *preview: Section) -> list[Group]:
        """`preview` stands below the rule."""
        return [
            Group(title="When it fires", fields=[self["when"], self["tz"]], sections=preview),
            self._folded("Kind", "a heartbeat or a reminder", "kind", "pace_min", "pace_max", "text"),
            self._folded("Hours and days", "when it must not fire", "active_hours", "active_zone", "exclude"),
            self._folded(
                "After an outage", "what becomes of missed fires", "catch_up", "catch_up_max", "catch_up_window"
            ),
            self._folded("Not all at once", "spread and jitter", "spread", "jitter"),
            self._folded("From, until, how often", "when it begins and ends", "start", "end", "max_fires"),
            self._folded("Data", "what its agent is given", "data"),
        ]

    def refuse(self, wrong: RuleError) -> None:
        """Tell what is wrong beside its field."""
        field = wrong.field if wrong.field in self.fields else "when"
        text = str(wrong).removeprefix(f"{wrong.field}: ")
        self.add_error(field, f"{text[:1].upper()}{text[1:]}.")

    def _folded(self, title: str, otherwise: str, *names: str) -> Group:
        fields = [self[name] for name in names]
        said = [f"{_plain(field.label)}: {_shown(field)}" for field in fields if _is_said(field)]
        return Group(title=title, fields=fields, folded=True, said=" · ".join(said) or otherwise)

    def _read_rule(self, cleaned: dict[str, Any]) -> Rule | None:
        if not cleaned.get("when") or not cleaned.get("tz"):
            return None
        try:
            return read_rule(cleaned["when"], tz=cleaned["tz"])
        except RuleError as wrong:
            self.refuse(wrong)
        return None

    def _read_policy(self, cleaned: dict[str, Any]) -> SchedulePolicy | None:
        try:
            return SchedulePolicy.parse(self._given(cleaned))
        except RuleError as wrong:
            self.refuse(wrong)
        return None

    def _given(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        given = {name: cleaned.get(name) for name in POLICY}
        for name in ("start", "end"):
            if (at := given[name]) is not None:
                given[name] = at if at.tzinfo else instant_of(at, self.zone)
        if cleaned.get("kind") == Schedule.Kind.REMINDER:
            given["data"] = {"text": (cleaned.get("text") or "").strip()}
        return given


UNITS = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1), "s": timedelta(seconds=1)}
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

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].choices = [("", "–"), *((agent.name, agent.name) for agent in all_agents())]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if bool(cleaned.get("agent")) == bool(cleaned.get("trigger")):
            self.add_error("agent", "Choose an agent or an existing trigger, one of them.")
        return cleaned

    def groups(self, *preview: Section) -> list[Group]:
        whom = Group(title="What it wakes", fields=[self["name"], self["agent"], self["trigger"]])
        return [whom, *super().groups(*preview)]


class EditScheduleForm(RuleForm):
    """One that stands."""

    def __init__(self, schedule: Schedule, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, initial=as_initial(schedule), **kwargs)


def as_initial(schedule: Schedule) -> dict[str, Any]:
    """The form's values for a schedule that stands."""
    zone = zone_of_schedule(schedule)
    policy = SchedulePolicy.of(schedule)
    values = {name: getattr(policy, name) for name in POLICY}
    typed = {name: _as_typed(value) if isinstance(value, timedelta) else value for name, value in values.items()}
    for name in ("start", "end"):
        typed[name] = f"{values[name].astimezone(zone):{FORMAT}}" if values[name] else ""
    if schedule.kind == Schedule.Kind.REMINDER and isinstance(schedule.data, dict):
        typed |= {"text": schedule.data.get("text", ""), "data": None}
    return {**typed, "exclude": list(policy.exclude), "when": _when(schedule, zone), "tz": str(zone)}


def _when(schedule: Schedule, zone: ZoneInfo) -> str:
    try:
        rule = rule_of(schedule.task)
    except RuleError:
        return ""
    match rule:
        case Cron():
            return rule.text
        case Interval():
            return f"every {_as_typed(rule.every)}"
    return f"at {rule.at.astimezone(zone):%Y-%m-%dT%H:%M:%S}"


def _as_typed(length: timedelta) -> str:
    """Such as "1h30m", which reads as the same again."""
    if not length:
        return ""
    left, parts = length, []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        parts += [f"{count}{unit}"] if count else []
    if left:
        return f"{length.total_seconds():g}s"
    return "".join(parts)


def _is_said(field: BoundField) -> bool:
    """Whether it says something beside its default."""
    value = field.value()
    return value not in (None, "", [], "null") and value != field.field.initial


def _shown(field: BoundField) -> str:
    value = field.value()
    if isinstance(value, list):
        return ", ".join(map(str, value))
    chosen = dict(getattr(field.field, "choices", ())).get(value)
    return str(chosen).partition(":")[0] if chosen else str(value)


def _plain(label: Any) -> str:
    return str(label)[:1].lower() + str(label)[1:]
