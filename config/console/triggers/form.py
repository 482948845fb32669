from collections.abc import Mapping, Sequence
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextareaWidget

from agents.registry import all_agents
from config.console.notifications.reports_field import ReportsField
from config.console.parts import fields
from config.console.parts.pages import Group
from config.console.parts.report_lines import as_lines
from config.console.triggers.expression_field import ExpressionField, check
from config.console.triggers.seen_fields import offered
from runs.enqueue import EVENTS_PER_RUN
from runs.models.policy import REPORTS
from triggers.matching.trigger_policy import DEFAULTS, MOST_AT_ONCE, check_policy
from triggers.models import Source, Trigger

# Events of these sources always target one trigger; a trigger never needs to listen to them.
AIMED = ("schedule", "manual")
OVERLAPS = {
    Trigger.Overlap.ALLOW: "allow: both run",
    Trigger.Overlap.SKIP: "skip: the new event starts no run",
    Trigger.Overlap.QUEUE_ONE: "queue_one: one run waits and handles all further events",
    Trigger.Overlap.QUEUE: "queue: one run after the other, in order",
    Trigger.Overlap.CANCEL_PREVIOUS: "cancel_previous: the live run is cancelled, the latest event wins",
}
EXECUTION = (
    "queue", "priority", "timeout", "retries", "backoff", "backoff_factor", "backoff_max", "pause_after", "incident_after",
)  # fmt: skip
INTAKE = ("rate", "overflow", "debounce", "batch", "max_wait", "own_changes")
POLICY = (*EXECUTION, *INTAKE, REPORTS)
COLUMNS = ("enabled", "source", "filter", "input", "key", "key_limit", "overlap")
NO_TOOL = "none"


class MatchForm(forms.Form):
    """The fields that match events."""

    source = fields.ChoiceField(required=False, help_text="Match events of one source, or of any.")
    types = fields.ExpandableField(
        required=False,
        label="Event types",
        help_text="Enter one per line, e.g. <code>customer.created</code> or <code>invoice.*</code>. "
        "Empty: only events that target this trigger, e.g. from its schedules.",
    )
    filter = ExpressionField(
        required=False,
        label="Filter",
        help_text="Enter a CEL expression, e.g. <code>event.data.amount &gt; 100</code>. Empty: every event of these types.",
    )
    key = ExpressionField(
        required=False,
        label="Key",
        help_text="Enter a CEL expression, e.g. <code>event.data.customer</code>. Runs with one key do not overlap. Empty: one key.",
    )
    input = forms.JSONField(
        required=False,
        initial=dict,
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 3}),
        label="Input",
        help_text="Map input names to CEL, e.g. <code>{&quot;id&quot;: &quot;event.data.id&quot;}</code>. Empty: the event’s data.",
    )

    class Media:
        js = (forms.Script("console/seen_fields.js", defer=True),)

    def __init__(self, *args: Any, offers: bool = False, **kwargs: Any) -> None:
        """`offers`: the fields of recent events are offered, to people who may see events."""
        super().__init__(*args, **kwargs)
        self.offers = offers
        slugs = Source.objects.exclude(slug__in=AIMED).order_by("slug").values_list("slug", flat=True)
        known = [*slugs, *({self.initial.get("source")} - {None, "", *slugs})]
        self.fields["source"].choices = [("", "any"), *((slug, slug) for slug in known)]  # type: ignore[attr-defined]

    def clean_types(self) -> list[str]:
        return self.cleaned_data["types"].replace(",", " ").split()  # type: ignore[no-any-return]

    def clean_input(self) -> dict[str, str]:
        mapping = self.cleaned_data["input"] or {}
        if not isinstance(mapping, dict) or not all(isinstance(value, str) for value in mapping.values()):
            raise ValidationError("Enter a JSON object whose values are CEL expressions.")
        for name, text in mapping.items():
            check(text, f"{name}: ")
        return mapping

    def groups(self) -> list[Group]:
        match = [self[name] for name in ("source", "types", "filter", "key", "input")]
        return [Group(fields=match, sections=[offered(tries=False)] if self.offers else ())]


class TriggerForm(MatchForm):
    """The fields of a trigger that an operator may change."""

    enabled = fields.BooleanField(
        required=False,
        initial=True,
        help_text="Turn off to match no events. To hold events instead, pause the trigger.",
    )
    overlap = fields.ChoiceField(
        choices=[(value.value, text) for value, text in OVERLAPS.items()],
        help_text="Choose what a new event does while a run with its key is live.",
    )
    key_limit = fields.IntegerField(
        min_value=1,
        max_value=MOST_AT_ONCE,
        initial=1,
        label="Concurrent runs per key",
        help_text="Limit the concurrent runs of one key.",
    )
    rate = fields.CharField(
        required=False,
        help_text="Limit the starts per key in any such period: <code>10/h</code>, <code>100/15m</code>. Empty: no limit.",
    )
    overflow = fields.ChoiceField(
        choices=[("delay", "delay: it starts when the rate allows"), ("drop", "drop: no run, with a reason")],
        help_text="Choose what happens to an event over the rate.",
    )
    debounce = fields.FloatField(
        min_value=0,
        label="Debounce (s)",
        help_text="Wait for this long without events, then start one run for all of them. 0: no debounce.",
    )
    batch = fields.IntegerField(
        min_value=0, max_value=EVENTS_PER_RUN, help_text="Start one run for this many events of one key. 0: no batch."
    )
    max_wait = fields.FloatField(
        min_value=0,
        label="Maximum wait (s)",
        help_text="Limit the wait of a debounce or batch. 0: ten times the debounce, or 60 s for a batch.",
    )
    own_changes = fields.BooleanField(
        required=False,
        label="Own changes count",
        help_text="Of watched tables: changes that runs of this agent make wake it, too.",
    )
    queue = fields.CharField(max_length=100, help_text="Name the queue. Workers serve queues by name.")
    priority = fields.IntegerField(min_value=0, max_value=9, help_text="0 is most urgent, 9 least.")
    timeout = fields.FloatField(
        min_value=0, label="Timeout (s)", help_text="Limit the duration of an attempt. 0: the installation’s default."
    )
    retries = fields.IntegerField(min_value=0, max_value=100, help_text="Retry up to this many times.")
    backoff = fields.FloatField(min_value=0, label="First backoff (s)")
    backoff_factor = fields.FloatField(min_value=1, help_text="Each retry waits this many times longer.")
    backoff_max = fields.FloatField(min_value=0, label="Longest backoff (s)")
    tools = fields.ExpandableField(
        required=False,
        label="Tools",
        help_text="Enter one name per line: LLM calls of its runs can use these tools and no others. Runs that they spawn "
        "can use no more. Empty: every tool that the agent has. <code>none</code>: no tool.",
    )
    pause_after = fields.IntegerField(
        min_value=0, label="Pause after", help_text="Pause the trigger after this many failed runs in a row. 0: never."
    )
    incident_after = fields.IntegerField(
        min_value=0,
        label="Incident after",
        help_text="Open an incident after this many failed runs with one cause, without a success between. 0: never.",
    )

    reports = ReportsField()

    def clean_tools(self) -> list[str] | None:
        names = self.cleaned_data["tools"].replace(",", " ").split()
        if NO_TOOL in names and len(names) > 1:
            raise ValidationError("Enter “none” alone, or the names of tools.")
        return [] if names == [NO_TOOL] else sorted(set(names)) or None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        counts = cleaned["rate"] or cleaned["debounce"] or cleaned["batch"]
        if cleaned["key"] and cleaned["overlap"] == Trigger.Overlap.ALLOW and not counts:
            self.add_error("overlap", "With “allow” the key has no effect: choose another overlap, or clear the key.")
            return cleaned
        policy = {name: cleaned[name] for name in POLICY}
        try:
            check_policy(policy, overlap=cleaned["overlap"], key_limit=cleaned["key_limit"])
        except ValueError as error:
            self.add_error(None, str(error))
        return cleaned

    def values(self) -> dict[str, Any]:
        """The trigger's fields from the form; its policy holds only values that differ from the defaults."""
        cleaned = self.cleaned_data
        values = {name: cleaned[name] for name in ("types", "tools", *COLUMNS)}
        return {**values, "policy": {name: cleaned[name] for name in POLICY if cleaned[name] != DEFAULTS[name]}}

    def groups(self) -> list[Group]:
        match = [self[name] for name in ("source", "types", "filter", "input")]
        return [
            *self.first_group(),
            Group(title="Events", fields=match, sections=[offered(tries=True)] if self.offers else ()),
            self._folded("Overlap", ("key", "overlap", "key_limit")),
            self._folded("Flow control", INTAKE),
            self._folded("Execution", EXECUTION),
            self._folded("LLM calls", ("tools",)),
            self._folded("Reports", (REPORTS,)),
        ]

    def _folded(self, title: str, names: Sequence[str]) -> Group:
        """A folded group, whose defaults suit most triggers; it lists other values while folded."""
        usual = {"overlap": Trigger.Overlap.ALLOW.value, "key_limit": 1, **DEFAULTS}
        set_here = [self[name] for name in names if str(self[name].value() or "") not in (str(usual.get(name)), "")]
        said = ", ".join(f"{field.label}: {field.value()}" for field in set_here)
        return Group(title=title, fields=[self[name] for name in names], folded=True, said=said)

    def first_group(self) -> list[Group]:
        return [Group(fields=[self["enabled"]])]


class NewTriggerForm(TriggerForm):
    slug = fields.SlugField(max_length=100, help_text="Permanent identifier, used in the API and logs.")
    agent = fields.ChoiceField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["agent"].choices = [(agent.name, agent.name) for agent in all_agents()]  # type: ignore[attr-defined]

    def clean_slug(self) -> str:
        slug: str = self.cleaned_data["slug"]
        if Trigger.objects.filter(slug=slug).exists():
            raise ValidationError("A trigger with this slug already exists.")
        return slug

    def values(self) -> dict[str, Any]:
        return {"slug": self.cleaned_data["slug"], "agent": self.cleaned_data["agent"], **super().values()}

    def first_group(self) -> list[Group]:
        return [Group(fields=[self["slug"], self["agent"], self["enabled"]])]


def as_initial(trigger: Trigger) -> dict[str, Any]:
    """The form's values for a trigger."""
    own = {name: getattr(trigger, name) for name in COLUMNS}
    tools = "" if trigger.tools is None else "\n".join(trigger.tools) or NO_TOOL
    return {**own, "types": "\n".join(trigger.types), "tools": tools, **policy_as_initial(trigger.policy)}


def policy_as_initial(policy: Mapping[str, Any]) -> dict[str, Any]:
    own = {name: policy.get(name, DEFAULTS[name]) for name in POLICY}
    return {**own, REPORTS: as_lines(own[REPORTS])}
