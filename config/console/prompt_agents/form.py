"""The forms of prompt agents: what one does, and when it wakes."""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextInputWidget

from agents.budget import Budget as Caps
from agents.exceptions import DeclarationError
from agents.kernel.report import read_reports
from agents.llm.tools import ToolPolicy
from agents.prompt_agents.definition import Definition
from agents.tools import toolbox
from config.console.notifications.reports_field import ReportsField
from config.console.parts import fields
from config.console.parts.pages import Group
from config.console.parts.sections import Section
from config.console.schedules.policy_fields import ZONES
from config.console.triggers.expression_field import ExpressionField
from config.console.triggers.form import AIMED
from runs.actions.checklists import ItemEdit
from runs.models import Recipient, RecipientGroup
from triggers.exceptions import Invalid, RuleError
from triggers.models import Source
from triggers.prompt_agents.as_json import caps_of
from triggers.prompt_agents.connections import connections_for
from triggers.prompt_agents.wakes import OnAbsence, OnEvents, OnSchedule, When, read_wake
from triggers.schedules.rules.rule import Rule
from triggers.schedules.rules.words import read_rule

CONNECTION = "connection_"  # how the names of these fields begin
CAPS = {"run_usd": "each run", "day_usd": "a day"}


class WakeForm(forms.Form):
    """The wakes of an agent: a schedule in words, event types, or a source."""

    when = forms.CharField(
        required=False,
        max_length=200,
        label="Schedule",
        widget=UnfoldAdminTextInputWidget(
            attrs={"placeholder": "every weekday at 08:00", "autocomplete": "off", "spellcheck": "false"}
        ),
        help_text="Enter words or a crontab: <code>every weekday at 08:00</code> · <code>every 30m</code> · "
        "<code>0 8 * * mon-fri</code> · <code>every weekday at 15:00, unless ci.passed came since noon</code>.",
    )
    tz = fields.ChoiceField(label="Zone", choices=ZONES, initial="UTC", help_text="Applies to the schedule.")
    types = fields.CharField(
        required=False,
        label="Event types",
        help_text="Enter globs, e.g. <code>invoice.* customer.created</code>. The agent gets each event as data from outside.",
    )
    source = fields.ChoiceField(
        required=False,
        label="Source",
        help_text="Choose a webhook source to wake on its events alone. Without types: on all of them.",
    )
    filter = ExpressionField(
        required=False,
        label="Filter",
        help_text="Enter a CEL expression, e.g. <code>event.data.amount &gt; 100</code>. Empty: every such event.",
    )

    reports = ReportsField()

    class Media:
        js = (forms.Script("console/own_zone.js", defer=True),)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not self.is_bound:
            self.fields["tz"].widget.attrs["data-own-zone"] = ""
        slugs = Source.objects.exclude(slug__in=AIMED).order_by("slug").values_list("slug", flat=True)
        self.fields["source"].choices = [("", "any"), *((slug, slug) for slug in slugs)]  # type: ignore[attr-defined]
        self.rule: Rule | None = None
        self.absence: OnAbsence | None = None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean() or self.cleaned_data
        try:
            self.rule = self.read_rule(cleaned)
        except RuleError as wrong:
            self.add_error(wrong.field if wrong.field in self.fields else "when", f"{wrong}.")
        return cleaned

    def read_rule(self, cleaned: dict[str, Any]) -> Rule | None:
        """The schedule; a deadline is kept as `absence`. RuleError: it makes no sense."""
        if not cleaned.get("when"):
            return None
        found, rest = read_wake(cleaned["when"], cleaned.get("tz") or "UTC")
        if isinstance(found, OnAbsence) and not rest:
            self.absence = found
            return None
        return read_rule(cleaned["when"], cleaned.get("tz") or "UTC")

    def wakes(self) -> list[When]:
        """The wakes of a valid form."""
        given, found = self.cleaned_data, list[When]()
        reports = read_reports(given["reports"])
        if self.rule:
            found.append(OnSchedule(rule=self.rule, reports=reports))
        if self.absence:
            found.append(replace(self.absence, reports=reports))
        if given["types"] or given["source"]:
            types = given["types"].replace(",", " ").split() or ["*"]
            found.append(OnEvents(types=types, source=given["source"], filter=given["filter"], reports=reports))
        return found

    def when_groups(self, *preview: Section) -> list[Group]:
        events = [self[name] for name in ("types", "source", "filter")]
        return [
            Group(title="When it wakes", fields=[self["when"], self["tz"]], sections=preview),
            Group(title="Events", fields=events, folded=True, said="also on events or deliveries of a webhook"),
            Group(title="Reports", fields=[self["reports"]], folded=True, said="how its runs end"),
        ]


class DefinitionForm(forms.Form):
    """The definition of an agent: instructions, tools, and who is notified."""

    instructions = fields.TextField(
        max_length=20_000,
        rows=5,
        label="Instructions",
        help_text="Write what the agent should look for and what it should report.",
    )
    tools = fields.MultipleChoiceField(
        required=False,
        label="Tools",
        help_text="Choose what it may use. Without tools it knows only its instructions and the event. A dangerous tool needs a "
        "person's approval once the run has seen data from outside.",
    )
    model = forms.CharField(
        required=False,
        max_length=200,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off", "spellcheck": "false"}),
        label="Model",
        help_text="Enter e.g. <code>openai:gpt-5.2</code>. Empty: the model of WAKEFUL_MODEL.",
    )
    by_thread = fields.BooleanField(
        required=False,
        label="A conversation per thread",
        help_text="A run that a message woke goes on with the conversation of its thread. The source of the message must allow replies.",
    )
    session = fields.CharField(
        required=False,
        max_length=100,
        label="Session",
        help_text="Name a conversation that its runs share. Empty: each run begins without memory of the last.",
    )
    notify = fields.BooleanField(
        required=False, initial=True, label="Notify", help_text="Notify people if its verdict has something to report."
    )
    notify_to = fields.MultipleChoiceField(
        required=False,
        label="Recipients",
        help_text="Choose recipients or groups. None: those who get notifications that name no recipient.",
    )
    emit = fields.CharField(
        required=False,
        max_length=200,
        label="Emit an event",
        help_text="Enter its type, e.g. <code>triage.finding</code>, to pass the verdict on to other agents. Empty: none.",
    )
    ask_first = fields.BooleanField(
        required=False, label="Ask first", help_text="Let a person approve the message, and edit it, before it is sent."
    )

    def __init__(self, *args: Any, by: str, **kwargs: Any) -> None:
        """`by`: who fills it in, as in the audit log."""
        super().__init__(*args, **kwargs)
        self._offer_connections(by)
        known = [(tool.name, in_words(tool)) for tool in toolbox.all_tools()]
        gone = set(self.initial.get("tools", ())) - {name for name, _ in known}
        known += [(name, f"{name}: no longer registered. Remove it.") for name in sorted(gone)]
        self.fields["tools"].choices = known  # type: ignore[attr-defined]
        names = [
            *Recipient.objects.filter(active=True).order_by("name").values_list("name", flat=True),
            *RecipientGroup.objects.order_by("name").values_list("name", flat=True),
        ]
        names += sorted(set(self.initial.get("notify_to", ())) - set(names))
        self.fields["notify_to"].choices = [(name, name) for name in names]  # type: ignore[attr-defined]

    def _offer_connections(self, by: str) -> None:
        """A field for each name that tools call a connection by."""
        chosen = self.initial.get("connections", {})
        usable = connections_for(by)
        called = toolbox.connections_of(toolbox.names())
        for name in sorted(called.keys() | chosen.keys()):
            before = chosen.get(name, "")
            names = [*usable, *([before] if before and before not in usable else [])]
            self.fields[CONNECTION + name] = fields.ChoiceField(
                required=False,
                label=f"Connection {name}",
                choices=[("", "none"), *((one, one) for one in names)],
                initial=before,
                help_text=f"Choose the account for {', '.join(called.get(name, ['a tool that is gone']))}. A connection of your own can "
                "be used by agents that you alone edit.",
            )

    def _connections(self) -> dict[str, str]:
        given = {
            name.removeprefix(CONNECTION): value
            for name, value in self.cleaned_data.items()
            if name.startswith(CONNECTION)
        }
        return {name: value for name, value in given.items() if value}

    def definition(self) -> Definition:
        """The definition in a valid form."""
        given = self.cleaned_data
        return Definition(
            instructions=given["instructions"].strip(),
            tools=tuple(given["tools"]),
            connections=self._connections(),
            model=given["model"].strip(),
            session=given["session"].strip(),
            by_thread=given["by_thread"],
            notify=given["notify"],
            notify_to=tuple(given["notify_to"]),
            emit=given["emit"].strip(),
            ask_first=given["ask_first"],
        )

    def refuse(self, wrong: Invalid) -> None:
        """Show each fault at its field."""
        for problem in wrong.problems:
            field, _, text = problem.partition(": ")
            if field == "connections":
                field = "tools"
            self.add_error(field if field in self.fields else None, f"{text or problem}.")

    def definition_groups(self) -> list[Group]:
        connections = [self[name] for name in self.fields if name.startswith(CONNECTION)]
        return [
            Group(title="What it may use", fields=[self["tools"], *connections]),
            Group(title="Its answer", fields=[self[name] for name in ("notify", "notify_to", "emit", "ask_first")]),
            Group(
                title="Model",
                fields=[self[name] for name in ("model", "by_thread", "session")],
                folded=True,
                said="model and session",
            ),
        ]


class NewForm(DefinitionForm, WakeForm):
    name = forms.CharField(
        max_length=100,
        widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off", "spellcheck": "false"}),
        help_text="Permanent name, e.g. <code>morning-triage</code>.",
    )
    checklist = fields.TextField(
        required=False,
        rows=3,
        label="Checklist",
        help_text="Enter one item per line that it looks at each time. Intervals and pauses: on its checklist, later.",
    )
    run_usd = fields.DecimalField(required=False, min_value=0, label="Budget of a run (US dollars)")
    day_usd = fields.DecimalField(
        required=False,
        min_value=0,
        label="Budget of a day (US dollars)",
        help_text="A run that has no budget left waits for more.",
    )

    def __init__(self, *args: Any, may_raise: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.may_raise = may_raise
        self.fields["instructions"].help_text = (
            "Write what the agent should look for and what it should report. You may begin with when: "
            "<code>every weekday at 8 look at failed runs and tell me what to fix first</code>, or "
            "<code>at 3 pm, unless ci.passed for branch main came since noon, tell me what holds it up</code>."
        )

    def read_rule(self, cleaned: dict[str, Any]) -> Rule | None:
        """The schedule of its field, else the one that its instructions begin with."""
        if cleaned.get("when"):
            return super().read_rule(cleaned)
        try:
            found, rest = read_wake(cleaned.get("instructions", ""), cleaned.get("tz") or "UTC")
        except RuleError as wrong:
            raise RuleError(str(wrong), field="instructions") from None
        if found and not rest:
            raise RuleError("the instructions only have a schedule; add what the agent should do", field="instructions")
        if found:
            cleaned["instructions"] = rest
        self.absence = found if isinstance(found, OnAbsence) else None
        return found.rule if isinstance(found, OnSchedule) else None

    def clean(self) -> dict[str, Any]:
        cleaned = super().clean()
        try:
            if self.caps() and caps_of(cleaned.get("name", "")) and not self.may_raise:
                raise ValidationError("A deleted agent of this name has caps, which you may not change.")
        except DeclarationError as error:
            raise ValidationError(f"{error}.".removeprefix("budget: ")) from None
        return cleaned

    def items(self) -> list[ItemEdit]:
        lines = [line.strip() for line in self.cleaned_data["checklist"].splitlines()]
        return [ItemEdit(text=line) for line in dict.fromkeys(lines) if line]

    def caps(self) -> Caps | None:
        given: dict[str, Decimal] = {
            name: self.cleaned_data[name] for name in CAPS if self.cleaned_data.get(name) is not None
        }
        return Caps(**given) if given else None  # type: ignore[arg-type]

    def groups(self, *preview: Section) -> list[Group]:
        return [
            Group(fields=[self["name"], self["instructions"]]),
            *self.when_groups(*preview),
            Group(title="Checklist", fields=[self["checklist"]]),
            *self.definition_groups(),
            Group(title="Budget", fields=[self[name] for name in CAPS], folded=True, said="a cap on what it spends"),
        ]


class EditForm(DefinitionForm):
    version = forms.IntegerField(widget=forms.HiddenInput)

    def groups(self) -> Sequence[Group]:
        return [Group(fields=[self["instructions"]]), *self.definition_groups()]


def in_words(tool: Any) -> str:
    """The tool with what it may do."""
    policy = ToolPolicy.of(tool.name, tool.metadata)
    traits = [policy.effect.replace("_", " ")]
    traits += ["dangerous"] if policy.dangerous else []
    traits += ["always needs approval"] if tool.requires_approval else []
    traits += [f"acts by connection {policy.connection}"] if policy.connection else []
    traits += [] if policy.trusted else ["brings data from outside"]
    return f"{tool.name} ({', '.join(traits)}): {_first_sentence(tool.description or '')}"


def _first_sentence(text: str) -> str:
    said = " ".join(text.split())
    return said.partition(". ")[0].removesuffix(".") + "."
