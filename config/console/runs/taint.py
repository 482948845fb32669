"""The causes of a run's taint, as far as its rows show them."""

from collections.abc import Iterator

from django.db.models import Q
from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.links import event_link, joined, run_link
from runs.models import Run, Step
from triggers.models import Event

TAINTED = "It has seen untrusted data and stays tainted: dangerous tools need approval."
STRANGERS = "data that strangers may write, by its source, when <code>{}</code> began"
ELSE = "the result of an untrusted tool, or run.taint()"  # neither is recorded
SHOWN = 5


def taint_of(run: Run) -> SafeString | str:
    """The taint as a row of facts; empty for a run that is not tainted."""
    if not run.is_tainted:
        return ""
    causes = [*_given(run), *_read(run)]
    more = [f"{len(causes) - SHOWN} more"] if len(causes) > SHOWN else []
    return format_html("{} By: {}.", TAINTED, joined([*causes[:SHOWN], *more] or [ELSE]))


def _given(run: Run) -> Iterator[SafeString]:
    """The tainted inputs of the run, and the tainted results that it waited for."""
    waits = list(run.waits.values_list("event_id", "children"))
    events = {*run.event_ids, *(event for event, _ in waits if event)}
    for event in Event.objects.filter(pk__in=events, is_tainted=True).order_by("seq").values_list("pk", flat=True):
        yield format_html("event {}", event_link(event))
    origins = {run.parent_id: "parent run {}", run.forked_from_id: "forked run {}"}
    origins |= {child: "child run {}" for _, children in waits for child in children}
    found = Run.objects.filter(pk__in=[pk for pk in origins if pk], is_tainted=True).order_by("id")
    for pk in found.values_list("pk", flat=True):
        yield format_html(origins[pk], run_link(pk))


def _read(run: Run) -> Iterator[SafeString]:
    """Data blocks of its calls of run.llm, turns of sessions, values of states, and notes."""
    blocks = run.steps.filter(kind=Step.Kind.LLM, output__untrusted=True)
    for key in blocks.order_by("position").values_list("key", flat=True):
        yield format_html("untrusted= of <code>{}</code>", key)
    woken = run.steps.filter(kind=Step.Kind.LLM, output__strangers=True)
    for key in woken.order_by("position").values_list("key", flat=True):
        yield format_html(STRANGERS, key)
    turns = run.steps.filter(key__endswith=":history", effect=Step.Effect.VALUE, output__is_tainted=True)
    for key in turns.order_by("position").values_list("key", flat=True):
        yield format_html("the session of <code>{}</code>", key.removesuffix(":history"))
    values = Q(key__startswith="state ", output__2=True)
    notes = Q(key__startswith="note", effect=Step.Effect.VALUE, output__contains=[{"is_tainted": True}])
    for key in run.steps.filter(values | notes).order_by("position").values_list("key", flat=True):
        yield format_html("<code>{}</code>", key)
