"""The lines that a run wrote to `run.log`, and the step of its journal during which it wrote each."""

from collections.abc import Sequence
from datetime import datetime
from urllib.parse import urlencode

from django.db.models import Sum
from django.urls import reverse
from django.utils.safestring import SafeString

from config.console.parts.html import format_html
from config.console.parts.links import link
from config.console.parts.moments import moment
from config.console.parts.sections import Section, Table
from runs.models import Run, RunLog, Step
from runs.transitions.entries import BYTES_OF_A_RUN, LINES_OF_A_RUN

CHUNKS = 300  # newest commits that are read
SHOWN = 300  # newest lines
STEPS = 1_000  # newest steps that lines are assigned to
BESIDE = 50  # lines beside a chosen step


def log_of(run: Run) -> list[Section]:
    chunks = _chunks(run)
    lines = [(chunk.epoch, *line) for chunk in chunks for line in chunk.content]
    if not chunks:
        return []
    count, size, dropped = _totals(run, chunks)
    is_full = count >= LINES_OF_A_RUN or size >= BYTES_OF_A_RUN
    shown = lines[-SHOWN:]
    notes = [
        f"The newest {len(shown):,} of {count:,}." if count > len(shown) else "",
        f"{dropped:,} more were written faster than they are kept." if dropped else "",
        "The run has as many as are kept; later ones are in the log of its worker only." if is_full else "",
    ]
    steps = _Steps(run)
    rows = [
        (moment(when := datetime.fromisoformat(at)), epoch, steps.link_at(when), level, _said(text, values, error))
        for epoch, at, level, text, values, error in shown
    ]
    return [
        Table(
            title="Log",
            headers=("When", "Claim", "Step", "Level", "Line"),
            rows=rows,
            empty="",
            note=" ".join(filter(None, notes)),
        )
    ]


def lines_within(run: Run, began: datetime, ended: datetime | None) -> str:
    """The first lines of this time, each on a line of the text, with the seconds since its beginning."""
    found = [
        f"+{(when - began).total_seconds():.3f} s {level} {' '.join(filter(None, (text, values, error)))}"
        for chunk in _chunks(run)
        for at, level, text, values, error in chunk.content
        if began <= (when := datetime.fromisoformat(at)) and (ended is None or when <= ended)
    ]
    more = [f"… {len(found) - BESIDE:,} more"] if len(found) > BESIDE else []
    return "\n".join([*found[:BESIDE], *more])


class _Steps:
    """The newest steps of a run by their times."""

    def __init__(self, run: Run) -> None:
        newest = (
            Step.objects.filter(run=run).order_by("-started_at").values_list("started_at", "ended_at", "key")[:STEPS]
        )
        self._steps = list(newest)
        self._url = reverse("admin:runs_run_change", args=[run.pk])

    def link_at(self, when: datetime) -> SafeString | str:
        """The step that had begun last and had not ended; empty: the body ran between two steps."""
        for began, ended, key in self._steps:
            if began <= when and (ended is None or when <= ended):
                return link(f"{self._url}?{urlencode({'entry': key})}#journal-entry", key)
        return ""


def _chunks(run: Run) -> list[RunLog]:
    return list(RunLog.objects.filter(run_id=run.pk).order_by("-epoch", "-number")[:CHUNKS])[::-1]


def _totals(run: Run, chunks: Sequence[RunLog]) -> tuple[int, int, int]:
    """Lines, bytes, and lines that were dropped, of all commits of the run."""
    if len(chunks) < CHUNKS:
        return sum(one.count for one in chunks), sum(one.size for one in chunks), sum(one.dropped for one in chunks)
    totals = RunLog.objects.filter(run_id=run.pk).aggregate(Sum("count"), Sum("size"), Sum("dropped"))
    return totals["count__sum"], totals["size__sum"], totals["dropped__sum"]


def _said(text: str, values: str, error: str) -> object:
    line = format_html('{} <span class="moment-ago">{}</span>', text, values)
    return format_html("{}<pre>{}</pre>", line, error) if error else line
