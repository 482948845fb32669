"""A notice of children that failed, on the pages of their parents and of the events that woke these."""

from collections.abc import Sequence
from uuid import UUID

from config.console.parts.html import format_html
from config.console.parts.links import run_link
from config.console.parts.sections import Notice, Section
from config.console.runs.children import name_of, spawned_by
from config.console.runs.words import first_line
from runs.db.sql import fetch
from runs.models import Run
from runs.states import RunStatus

SHOWN = 5  # children that it links
# A range, in the order of the index `run_by_parent`: for an equality PostgreSQL may read all failed runs if the parent has many children.
FIRST = """
SELECT child.id, child.agent, child.error FROM unnest(%(parents)s::uuid[]) parent (id), LATERAL (
  SELECT id, agent, error FROM runs_run WHERE parent_id BETWEEN parent.id AND parent.id AND status = 'failed'
  ORDER BY parent_id, id LIMIT %(most)s::int) child
ORDER BY child.id LIMIT %(most)s::int
"""


def failed_children(run_ids: Sequence[UUID]) -> list[Section]:
    """A notice with the children of these runs that failed; none where none did."""
    first = fetch(FIRST, {"parents": list(run_ids), "most": SHOWN}) if run_ids else []
    if not first:
        return []
    names = spawned_by(run_ids)
    children = Run.objects.filter(parent_id__in=run_ids)
    count, of = children.filter(status=RunStatus.FAILED).count(), children.count()
    details = [
        format_html("{}: {}", run_link(id, name_of(names.get(id, agent))), first_line(error))
        for id, agent, error in first
    ]
    more = [f"{count - len(first)} more"] if count > len(first) else []
    text = f"{count} of its {of} children failed." if of > 1 else "Its child failed."
    return [Notice(text=text, level="warning", details=[*details, *more])]
