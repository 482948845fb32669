"""Find runs by what people know of them: an id or its beginning, a subject, a trigger, an agent, a key, a part of an error.

No index is kept for this: ids, triggers and subjects have one, which other things need; agents and keys are looked for among the newest
runs, and errors among the newest failed ones, whose ids are in an index of their own. Each part is bounded, however many runs there are.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import QuerySet

from agents.kernel.redaction import redacted
from config.console.parts.list_search import field_in
from runs.actions.event_runs import runs_of_event, runs_of_events
from runs.db.sql import fetch, fetch_column
from runs.models import Run
from triggers.events.pages import page_of
from triggers.events.search import FieldIs, Search
from triggers.models import Event

FOUND = 1_000  # runs of one kind
EVENTS = 200  # of a subject, or with a field
NEWEST = 25_000  # runs whose agents and keys are read
FAILED = 10_000  # newest failed runs whose errors are read
SHORTEST = 3  # characters of a part of an error
BEGINNING = re.compile(r"[0-9a-f]{6,32}")  # of an id, or a whole one, without hyphens
HELP = (
    "The beginning of an id, an event's id, a subject, a field of its event's data such as data.order_id=A-312, a trigger or its "
    f"agent; in the newest {NEWEST:,} runs any agent or a key; in "
    f"the newest {FAILED:,} failed runs a part of the error"
)
# A range, in the order of the index `run_by_trigger`: for an equality the planner may read all runs in the order of their ids.
OF_TRIGGER = """
SELECT run.id FROM (
  SELECT %(term)s::text AS slug UNION (SELECT slug FROM triggers_trigger WHERE agent = %(term)s::text LIMIT 20)) one,
  LATERAL (
    SELECT id FROM runs_run WHERE trigger BETWEEN one.slug AND one.slug ORDER BY trigger DESC, id DESC LIMIT %(found)s::int) run
"""
# A key is `<trigger uuid>:<value>`.
AMONG_NEWEST = """
SELECT id FROM (SELECT id, agent, key FROM runs_run ORDER BY id DESC LIMIT %(newest)s::int) newest
WHERE agent = %(term)s::text OR substr(key, 38) = %(term)s::text LIMIT %(found)s::int
"""
BY_ERROR = """
SELECT id, error FROM (SELECT id, error FROM runs_run WHERE status = 'failed' ORDER BY id DESC LIMIT %(failed)s::int) newest
WHERE strpos(lower(error), lower(%(term)s::text)) > 0 LIMIT %(found)s::int
"""
OF_SUBJECT = """
SELECT id FROM triggers_event WHERE subject = %(term)s::text AND subject <> '' ORDER BY id DESC LIMIT %(events)s::int
"""


def find_runs(term: str, *, sees_events: bool) -> set[UUID]:
    """`sees_events`: without this right, no run is found by a field of its event's data."""
    if field := field_in(term):
        return find_by_field(field) if sees_events else set()
    names = {"term": term, "found": FOUND, "newest": NEWEST, "failed": FAILED, "events": EVENTS}
    found = {
        *_by_id(Run.objects.all(), term),
        *_rows(OF_TRIGGER, names),
        *_rows(AMONG_NEWEST, names),
        *_of_subject(names),
    }
    if id := _uuid(term):
        found.update(runs_of_event(id).values_list("id", flat=True))
    elif len(term) >= SHORTEST:
        found.update(_by_error(names))
    return found


def find_by_field(field: FieldIs, start: datetime | None = None, end: datetime | None = None) -> set[UUID]:
    """Runs of the newest events whose data has this field. Raises RuleError."""
    events = page_of(Search(fields=(field,), start=start, end=end), size=EVENTS).ids
    return set(runs_of_events(events).values_list("id", flat=True)) if events else set()


def find_events(term: str) -> list[UUID]:
    """Events whose id this begins, with this subject, or the newest ones with this field of their data."""
    if field := field_in(term):
        return list(page_of(Search(fields=(field,)), size=EVENTS).ids)
    return [*_by_id(Event.objects.all(), term), *fetch_column(OF_SUBJECT, {"term": term, "events": FOUND})]


def _by_id(rows: QuerySet[Any], term: str) -> Iterable[UUID]:
    """The newest of these rows whose id this begins."""
    digits = term.lower().replace("-", "")
    if not BEGINNING.fullmatch(digits):
        return []
    ends = [UUID(digits.ljust(32, filler)) for filler in "0f"]
    return rows.filter(pk__range=ends).order_by("-pk").values_list("pk", flat=True)[:FOUND]


def _of_subject(names: dict[str, object]) -> Iterable[UUID]:
    events = list(_rows(OF_SUBJECT, names))
    return runs_of_events(events).values_list("id", flat=True) if events else []


def _by_error(names: dict[str, object]) -> Iterable[UUID]:
    """By what a page shows of an error: a part of a secret, which was stored before it was known, must not be guessed here."""
    term = str(names["term"]).lower()
    return [id for id, error in fetch(BY_ERROR, names) if term in redacted(error).lower()]


def _rows(statement: str, names: dict[str, object]) -> Iterable[UUID]:
    return fetch_column(statement, names)


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None
