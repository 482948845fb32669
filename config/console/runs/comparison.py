"""A run beside the last success of its trigger: inputs, results, and how long each step took."""

from datetime import datetime, timedelta
from difflib import unified_diff

from django.http import HttpRequest

from agents.kernel.durations import in_words as span
from config.console.parts.links import run_link
from config.console.parts.moments import moment
from config.console.parts.sections import Beside, Facts, Notice, Section, Table, Text
from config.console.runs.input_and_result import HIDDEN, given, result_of
from config.console.runs.words import duration_of, trigger_of
from runs.models import Run, Step, Wait
from runs.states import RunStatus

LOOKED_THROUGH = 1_000  # runs of the trigger before this one
ENTRIES = 200  # of each journal
LINES = 2_000  # of each input, compared


def last_success_before(run: Run) -> Run | None:
    earlier = Run.objects.filter(trigger=run.trigger, id__lt=run.pk).order_by("-id").values_list("id", flat=True)
    found = Run.objects.filter(pk__in=list(earlier[:LOOKED_THROUGH]), status=RunStatus.SUCCEEDED)
    return found.order_by("-id").first()


def comparison(run: Run, request: HttpRequest) -> list[Section]:
    success = last_success_before(run)
    if success is None:
        return [Notice(text=f"None of the {LOOKED_THROUGH:,} runs of its trigger before it succeeded.")]
    facts = [_facts("This run", run), _facts("The last success before it", success)]
    ours, theirs = _input(run, request), _input(success, request)
    return [
        Beside(left=[facts[0]], right=[facts[1]]),
        _difference(theirs, ours),
        _steps(run, success),
        Beside(
            left=[Text(title="Input", text=ours), *result_of(run, [])],
            right=[Text(title="Input", text=theirs), *result_of(success, [])],
        ),
    ]


def _facts(title: str, run: Run) -> Facts:
    return Facts(
        title=title,
        rows=[
            ("Run", run_link(run.pk, run.agent)),
            ("Status", run.status),
            ("Trigger", trigger_of(run)),
            ("Version", run.version),
            ("Created", moment(run.created_at)),
            ("Waited to start", run.started_at and span(run.started_at - run.created_at)),
            ("Time from first start to end", duration_of(run)),
            ("Claims", run.epoch),
        ],
    )


def _input(run: Run, request: HttpRequest) -> str:
    return given(run, request)[0].text


def _difference(theirs: str, ours: str) -> Section:
    if HIDDEN in (theirs, ours):
        return Notice(text=HIDDEN)
    lines = list(
        unified_diff(theirs.splitlines()[:LINES], ours.splitlines()[:LINES], "the success", "this run", lineterm="")
    )
    if not lines:
        return Notice(text="Both had the same input.")
    return Text(title="What differs in the input", text="\n".join(lines))


def _steps(run: Run, success: Run) -> Table:
    ours, theirs = _took(run), _took(success)
    keys = list(dict.fromkeys([*theirs, *ours]))
    rows = [
        (key, _words(theirs.get(key)), _words(ours.get(key)), _longer(theirs.get(key), ours.get(key))) for key in keys
    ]
    is_cut = max(len(ours), len(theirs)) >= ENTRIES
    return Table(
        title="Steps and waits",
        headers=("Entry", "The success", "This run", "Difference"),
        rows=rows,
        empty="Neither has a journal: an atomic agent does all its work in one transaction.",
        note=f"The first {ENTRIES} of each." if is_cut else "",
    )


Spent = tuple[str, timedelta | None]  # the state of an entry, and how long it took


def _took(run: Run) -> dict[str, Spent]:
    steps = Step.objects.filter(run=run).values_list("position", "key", "status", "started_at", "ended_at")
    waits = Wait.objects.filter(run=run).values_list("position", "key", "status", "created_at", "ended_at")
    found = sorted([*steps.order_by("position")[:ENTRIES], *waits.order_by("position")[:ENTRIES]])
    return {key: (status, _between(began, ended)) for _, key, status, began, ended in found[:ENTRIES]}


def _between(began: datetime, ended: datetime | None) -> timedelta | None:
    return ended - began if ended else None


def _words(spent: Spent | None) -> str:
    if spent is None:
        return "–"
    status, took = spent
    return f"{status}, {span(took)}" if took is not None else status


def _longer(theirs: Spent | None, ours: Spent | None) -> str:
    if not theirs or not ours or theirs[1] is None or ours[1] is None:
        return "only one has it" if (theirs is None) != (ours is None) else ""
    more = ours[1] - theirs[1]
    return f"{'+' if more >= timedelta() else '−'}{span(abs(more))}"
