"""The lines that a run wrote to `run.log`."""

from collections.abc import Sequence
from datetime import datetime

from django.db.models import Sum

from config.console.parts.html import format_html
from config.console.parts.moments import moment
from config.console.parts.sections import Section, Table
from runs.models import Run, RunLog
from runs.transitions.entries import BYTES_OF_A_RUN, LINES_OF_A_RUN

CHUNKS = 300  # newest commits that are read
SHOWN = 300  # newest lines


def log_of(run: Run) -> list[Section]:
    chunks = list(RunLog.objects.filter(run_id=run.pk).order_by("-epoch", "-number")[:CHUNKS])[::-1]
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
    rows = [
        (moment(datetime.fromisoformat(at)), epoch, level, _said(text, values, error))
        for epoch, at, level, text, values, error in shown
    ]
    return [
        Table(
            title="Log",
            headers=("When", "Claim", "Level", "Line"),
            rows=rows,
            empty="",
            note=" ".join(filter(None, notes)),
        )
    ]


def _totals(run: Run, chunks: Sequence[RunLog]) -> tuple[int, int, int]:
    """Lines, bytes, and lines that were dropped, of all commits of the run."""
    if len(chunks) < CHUNKS:
        return sum(one.count for one in chunks), sum(one.size for one in chunks), sum(one.dropped for one in chunks)
    totals = RunLog.objects.filter(run_id=run.pk).aggregate(Sum("count"), Sum("size"), Sum("dropped"))
    return totals["count__sum"], totals["size__sum"], totals["dropped__sum"]


def _said(text: str, values: str, error: str) -> object:
    line = format_html('{} <span class="moment-ago">{}</span>', text, values)
    return format_html("{}<pre>{}</pre>", line, error) if error else line
