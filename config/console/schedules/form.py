"""The form of a schedule: its rule as text, and its policy in groups that open when needed."""

from typing import Any, cast
from zoneinfo import ZoneInfo

from django import forms
from django.forms.boundfield import BoundField
from django.utils.text import capfirst
from unfold.widgets import UnfoldAdminTextInputWidget

from agents.registry import all_agents
from config.console.parts import fields
from config.console.parts.pages import Group
from config.console.parts.sections import Section
from config.console.schedules.initial import as_initial
from config.console.schedules.policy_fields import POLICY, ZONES, PolicyFields
from triggers.exceptions import RuleError
from triggers.models import Schedule, Trigger
from triggers.schedules.clock import instant_of
from triggers.schedules.preview import describe
from triggers.schedules.rules.crontab import Cron
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.words import read_rule
from triggers.schedules.terms.policy import SchedulePolicy


class RuleForm(PolicyFields):
    """The rule and the policy of a schedule."""

    when = forms.CharField(
        label="When",
        max_length=200,
        widget=UnfoldAdminTextInputWidget(
            attrs={"placeholder": "every weekday at 09:00", "autocomplete": "off", "spellcheck": "false"}
        ),
        help_text="Enter words or a crontab: <code>every weekday at 09:00</code> · <code>every 30m</code> · "
        "<code>0 9 * * mon-fri</code> · <code>at 2026-12-01T09:00</code> · <code>in 20 minutes</code>",
    )
    tz = fields.ChoiceField(
        label="Zone",
        choices=ZONES,
        initial="UTC",
        help_text="Applies to these times, active hours and excluded days. An interval does not depend on it.",
    )
    field_order = ("when", "tz")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rule: Rule | None = None
        self.policy: SchedulePolicy | None = None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        self.rule = self._read_rule(cleaned)
        self.policy = self._read_policy(cleaned)
        return cleaned

    @property
    def agreed(self) -> tuple[Rule, SchedulePolicy]:
        """The definition from a valid form that requires a rule."""
        return cast(Rule, self.rule), cast(SchedulePolicy, self.policy)

    @property
    def zone(self) -> ZoneInfo:
        """The zone as posted, or the initial one."""
        name = self["tz"].value() or "UTC"
        return ZoneInfo(name if name in dict(ZONES) else "UTC")

    def groups(self, *preview: Section) -> list[Group]:
        """`preview` is shown below the rule."""
        return [
            Group(title="When it fires", fields=[self["when"], self["tz"]], sections=preview),
            self._folded("Kind", "a heartbeat or a reminder", "kind", "pace_min", "pace_max", "text"),
            self._folded("Hours and days", "when it must not fire", "active_hours", "active_zone", "exclude"),
            self._folded("After an outage", "catch-up of missed fires", "catch_up", "catch_up_max", "catch_up_window"),
            self._folded("Delays", "spread and jitter", "spread", "jitter"),
            self._folded("Limits", "start, end and number of fires", "start", "end", "max_fires"),
            self._folded("Data", "input for its agent", "data"),
        ]

    def refuse(self, wrong: RuleError) -> None:
        """Show an error at its field."""
        field = wrong.field if wrong.field in self.fields else "when"
        self.add_error(field, f"{capfirst(str(wrong).removeprefix(f'{wrong.field}: '))}.")

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
        if (given["active_hours"] or given["exclude"]) and not isinstance(self.rule, Cron):
            # Only a crontab stores a zone.
            given["active_zone"] = given["active_zone"] or str(self.zone)
        if cleaned.get("kind") == Schedule.Kind.REMINDER:
            given["data"] = {"text": (cleaned.get("text") or "").strip()}
        return given


class NewScheduleForm(RuleForm):
    """The form of a new schedule, with its agent or trigger."""

    name = fields.CharField(max_length=200)
    agent = fields.ChoiceField(
        required=False,
        label="Agent",
        help_text="Creates a trigger for the schedule, which skips a fire while its run is live.",
    )
    trigger = fields.ModelChoiceField(
        required=False,
        queryset=Trigger.objects.order_by("slug"),
        empty_label="–",
        label="Existing trigger",
        help_text="Uses the trigger's key, overlap and policy.",
    )

    class Media:
        js = (forms.Script("console/own_zone.js", defer=True),)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_bound:
            self.fields["tz"].widget.attrs["data-own-zone"] = ""
        self.fields["agent"].choices = [("", "–"), *((agent.name, agent.name) for agent in all_agents())]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        if bool(cleaned.get("agent")) == bool(cleaned.get("trigger")):
            self.add_error("agent", "Choose either an agent or an existing trigger.")
        return cleaned

    def groups(self, *preview: Section) -> list[Group]:
        whom = Group(title="What it wakes", fields=[self["name"], self["agent"], self["trigger"]])
        return [whom, *super().groups(*preview)]


class EditScheduleForm(RuleForm):
    """The form of an existing schedule."""

    def __init__(self, schedule: Schedule, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, initial=as_initial(schedule), **kwargs)
        if not self.initial["when"]:
            # For example a rule by the sun.
            self.fields["when"].required = False
            self.fields["when"].help_text += f" Leave empty to keep the current rule, {describe(schedule)}."


def _is_said(field: BoundField) -> bool:
    """Whether the field's value differs from its default."""
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
