"""The shadow-run page: choose a trigger and see what a past event would do with today's code."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

from django import forms
from django.http import HttpRequest

from agents.kernel.durations import in_words
from config.console.parts import fields
from config.console.parts.html import format_html
from config.console.parts.links import run_link
from config.console.parts.panel import acting
from config.console.parts.sections import Facts, Notice, Section, Table, Text, pretty
from runs.shadow.process import NotTried, report_of
from runs.shadow.shadow import Outcome
from triggers.dispatch.shadow import Candidate
from triggers.models import Event

LEVELS = {Outcome.SUCCEEDS: "good", Outcome.FAILS: "bad", Outcome.RETRIES: "bad", Outcome.STOPS: "warning"}
HOW = {
    "done": "executed and rolled back",
    "journal": "answered by the journal",
    "drawn": "generated again",
    "failed": "failed",
}


class ShadowForm(forms.Form):
    """The trigger whose agent gets the event, and the run whose journal answers calls and waits."""

    trigger = fields.ChoiceField(help_text="Choose a trigger that matches this event today.")
    run = forms.UUIDField(required=False, widget=forms.HiddenInput)

    def __init__(self, candidates: Sequence[Candidate], *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        wanting = [one.trigger for one in candidates if not one.why_not]
        choices = [(trigger.slug, f"{trigger.slug} (agent {trigger.agent})") for trigger in wanting]
        self.fields["trigger"].choices = choices  # type: ignore[attr-defined]


def tried(request: HttpRequest, event: Event, form: ShadowForm) -> list[Section]:
    """Execute the shadow run and show its report."""
    wanted: UUID | None = form.cleaned_data["run"]
    command = ["shadow", str(event.pk), "--trigger", form.cleaned_data["trigger"], "--by", acting(request)]
    try:
        return told(report_of([*command, *(["--run", str(wanted)] if wanted else [])]))
    except NotTried as why_not:
        return [Notice(level="bad", text=str(why_not))]


def not_wanting(candidates: Sequence[Candidate]) -> list[Section]:
    """The triggers that ran on it but would not match it today."""
    rows = [(one.trigger.slug, one.why_not, one.run and run_link(one.run.pk)) for one in candidates if one.why_not]
    if not rows:
        return []
    return [
        Table(
            title="Triggers that ran on it but would not match it today",
            headers=("Trigger", "Reason", "Run"),
            rows=rows,
            empty="",
        )
    ]


def told(shadow: dict[str, Any]) -> list[Section]:
    """The output of `manage.py shadow --json` for one trigger, as sections."""
    sections: list[Section] = [_notice(shadow), _facts(shadow)]
    stop = shadow["stop"]
    if stop and stop["arguments"] is not None:
        sections.append(Text(title="Arguments", text=pretty(stop["arguments"])))
    sections += [_changes(shadow), _statements(shadow), *_left(shadow["left"])]
    if shadow["result"] is not None:
        sections.append(Text(title="Result", text=pretty(shadow["result"])))
    if shadow["entries"]:
        sections.append(_entries(shadow))
    if shadow["traceback"]:
        sections.append(Text(title="Traceback", text=shadow["traceback"]))
    return sections


def _notice(shadow: dict[str, Any]) -> Notice:
    outcome, stop = Outcome(shadow["outcome"]), shadow["stop"]
    match outcome:
        case Outcome.SUCCEEDS:
            text = "It would succeed."
        case Outcome.FAILS:
            text = f"It would fail: {shadow['error']}"
        case Outcome.RETRIES:
            text = f"It would be retried later: {shadow['error']}"
        case Outcome.STOPS:
            at = f"Stopped at {stop['key']}: " if stop["key"] else "Stopped: "
            text = f"{at}{stop['said']}."
    details = [f"Took {shadow['seconds']:.2f} s. All of it was rolled back and nothing was sent."]
    return Notice(text=text, level=LEVELS[outcome], details=details)


def _facts(shadow: dict[str, Any]) -> Facts:
    return Facts(
        rows=[
            ("Trigger", shadow["trigger"]),
            ("Agent", f"{shadow['agent']} ({shadow['version']})" if shadow["version"] else shadow["agent"]),
            ("Calls and waits answered by", shadow["origin"] and run_link(shadow["origin"])),
        ]
    )


def _changes(shadow: dict[str, Any]) -> Table:
    return Table(
        title="Rows it would change",
        headers=("Table", "Inserted", "Updated", "Deleted"),
        rows=[(one["table"], one["inserted"], one["updated"], one["deleted"]) for one in shadow["changes"]],
        empty="None.",
    )


def _statements(shadow: dict[str, Any]) -> Table:
    shown, count = shadow["statements"], shadow["statement_count"]
    return Table(
        title="Statements that write",
        headers=("Statement", "Parameters", "Rows"),
        rows=[(_code(one["sql"]), _code(one["parameters"]), _touched(one)) for one in shown],
        empty="None.",
        note=f"The first {len(shown):,} of {count:,}." if count > len(shown) else "",
    )


def _touched(statement: dict[str, Any]) -> str:
    rows = str(statement["rows"]) if statement["rows"] >= 0 else ""
    return " ".join(filter(None, (rows, statement["state"])))


def _left(left: dict[str, Any]) -> list[Section]:
    """The effects of the shadow run, one section for each kind."""
    tables: list[tuple[str, tuple[str, ...], list[tuple[Any, ...]]]] = [
        (
            "Events it would emit",
            ("Type", "Subject", "Data"),
            [(one["type"], one["subject"] or "–", _code(pretty(one["data"]))) for one in left["emissions"]],
        ),
        ("Notifications", ("Urgency", "Text"), [(one["urgency"], one["text"]) for one in left["notices"]]),
        ("Replies", ("Place", "Text"), [(one["place"]["name"], one["text"]) for one in left["replies"]]),
        (
            "Runs it would spawn",
            ("Agent", "Input"),
            [(one["agent"], _code(pretty(one["input"]))) for one in left["children"]],
        ),
        (
            "Wakes it would set",
            ("After", "Reason", "Data"),
            [(_span(one["after"]), one["reason"] or "–", _code(pretty(one["data"]))) for one in left["wakes"]],
        ),
        (
            "Schedules it would set for itself",
            ("Name", "Rule"),
            [(one["name"], _rule(one)) for one in left["standings"]],
        ),
        (
            "Pace it would set for its heartbeat",
            ("Next check after", "Reason"),
            [(_span(one["after"]), one["reason"] or "–") for one in left["paces"][-1:]],
        ),
    ]
    return [Table(title=title, headers=headers, rows=rows, empty="") for title, headers, rows in tables if rows]


def _rule(standing: dict[str, Any]) -> str:
    if standing["cron"]:
        return f"{standing['cron']} ({standing['tz']})"
    return f"every {_span(standing['every'])}" if standing["every"] else "removed"


def _span(seconds: str) -> str:
    return in_words(timedelta(seconds=float(seconds)))


def _entries(shadow: dict[str, Any]) -> Table:
    not_asked = ", ".join(shadow["not_asked"])
    return Table(
        title="Journal entries",
        headers=("Key", "Kind", "Answer"),
        rows=[(one["key"], one["kind"], HOW.get(one["how"], one["how"])) for one in shadow["entries"]],
        empty="",
        note=f"In the journal, but not used by today's code: {not_asked}." if not_asked else "",
    )


def _code(text: str) -> Any:
    return format_html('<code class="console-code">{}</code>', text) if text else "–"
