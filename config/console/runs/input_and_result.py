"""What a run was given and what came of it, side by side."""

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest

from config.console.parts.html import format_html
from config.console.parts.links import event_link
from config.console.parts.payload import REMOVED, cut, payload_of
from config.console.parts.sections import Beside, Section, Text, pretty
from config.console.runs.traceback import traceback_of
from runs.models import Attempt, Run
from runs.states import LIVE, RunStatus
from triggers.models import Event

SEES_EVENTS = "triggers.view_event"
HIDDEN = f"You may not see the data of events ({SEES_EVENTS})."


def input_and_result(run: Run, attempts: Sequence[Attempt], request: HttpRequest) -> Beside:
    return Beside(left=given(run, request), right=result_of(run, attempts))


def given(run: Run, request: HttpRequest) -> list[Text]:
    event = Event.objects.filter(pk=run.event_ids[-1]).first() if run.event_ids else None
    about = _about(run, event)
    if run.payload_removed_at:
        return [Text(title="Input", text=REMOVED, note=about)]
    if event is None or run.input is not None:
        own = _text("Input", run.input, note=about)
        return [own, _of_event(event, request, "Data of the event", folded=True)] if event else [own]
    return [_of_event(event, request, "Input", note=about)]


def _about(run: Run, event: Event | None) -> Any:
    if event is None:
        return "Its event has been deleted." if run.event_ids else "From the run that spawned it."
    others = f"; the newest of {len(run.event_ids):,}" if len(run.event_ids) > 1 else ""
    name = event_link(event.pk, event.type)
    return (
        format_html("{} <b>{}</b>{}", name, event.subject, others)
        if event.subject
        else format_html("{}{}", name, others)
    )


def _of_event(event: Event, request: HttpRequest, title: str, *, note: Any = "", folded: bool = False) -> Text:
    if not request.user.has_perm(SEES_EVENTS):
        return Text(title=title, text=HIDDEN, note=note, folded=folded)
    payload = payload_of(event)
    text, rest = cut(payload.text)
    return Text(title=title, text=text, note=_joined(note, payload.note, rest), folded=folded)


def result_of(run: Run, attempts: Sequence[Attempt]) -> list[Section]:
    if run.payload_removed_at:
        return [Text(title="Result", text=REMOVED)]
    if run.status == RunStatus.SUCCEEDED or run.result is not None:
        return [_text("Result", run.result, note="" if run.result is not None else "It returned nothing.")]
    if run.status == RunStatus.CANCELLED or not run.error:
        return [Text(title="Result", text="", note="None yet." if run.status in LIVE else "None.")]
    text, note = cut(run.error)
    sections: list[Section] = [Text(title="Error" if run.status not in LIVE else "Latest error", text=text, note=note)]
    if attempts and attempts[0].traceback:
        sections.append(traceback_of(f"Traceback of attempt {attempts[0].number}", attempts[0].traceback))
    return sections


def _text(title: str, value: Any, *, note: Any = "") -> Text:
    text, rest = cut(pretty(value))
    return Text(title=title, text=text, note=_joined(note, rest))


def _joined(*notes: Any) -> Any:
    found = [note for note in notes if note]
    return format_html(" · ".join("{}" for _ in found), *found) if found else ""
