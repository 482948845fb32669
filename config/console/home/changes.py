"""What has changed since yesterday: by people, and apart from them by commands, such as those of deploys."""

from collections.abc import Sequence
from dataclasses import dataclass

from config.console.access.audit import details_of, newest_entries, subject_of
from config.console.parts.html import shortened
from config.console.parts.links import listing
from config.console.parts.moments import appointment
from config.console.parts.sections import Cell
from runs.models import AuditEntry

SINCE = "yesterday"
LOOKED_THROUGH = 500  # newest entries of any kind
SHOWN = 5
LONGEST = 160  # characters of a detail
PEOPLE = ("admin:", "token:")


@dataclass(frozen=True, kw_only=True)
class Change:
    at: Cell
    action: str
    on: Cell
    by: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Changes:
    """By whom, in words; `url`: all of them."""

    by: str
    url: str
    shown: list[Change]


def changes() -> list[Changes]:
    found = newest_entries(SINCE, done_by=("people", "commands"), looked_through=LOOKED_THROUGH)
    people = [entry for entry in found if entry.by.startswith(PEOPLE)]
    commands = [entry for entry in found if not entry.by.startswith(PEOPLE)]
    return [_changes("people", people, "people"), _changes("commands and deploys", commands, "commands")]


def _changes(words: str, entries: Sequence[AuditEntry], done_by: str) -> Changes:
    url = listing("runs_auditentry", since=SINCE, done_by=done_by)
    return Changes(by=words, url=url, shown=[_change(entry) for entry in entries[:SHOWN]])


def _change(entry: AuditEntry) -> Change:
    return Change(
        at=appointment(entry.at),
        action=entry.action,
        on=subject_of(entry),
        by=entry.by,
        detail=shortened(details_of(entry), LONGEST),
    )
