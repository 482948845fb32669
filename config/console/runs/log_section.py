"""The lines that a run wrote to `run.log`."""

from datetime import datetime

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
    dropped = sum(chunk.dropped for chunk in chunks)
    is_full = len(lines) >= LINES_OF_A_RUN or sum(chunk.size for chunk in chunks) >= BYTES_OF_A_RUN
    notes = [
        f"The newest {SHOWN} of {len(lines):,}." if len(lines) > SHOWN else "",
        f"{dropped:,} more were written faster than they are kept." if dropped else "",
        "The run has as many as are kept; later ones are in the log of its worker only." if is_full else "",
    ]
    rows = [
        (moment(datetime.fromisoformat(at)), epoch, level, _said(text, values, error))
        for epoch, at, level, text, values, error in lines[-SHOWN:]
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


def _said(text: str, values: str, error: str) -> object:
    line = format_html('{} <span class="moment-ago">{}</span>', text, values)
    return format_html("{}<pre>{}</pre>", line, error) if error else line
