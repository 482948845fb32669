"""All switches that are on, for the dispatcher, read again when sources change."""

import json
from uuid import UUID

import structlog

from runs.db.sql import fetch
from triggers.matching.index import Index
from triggers.switches.switch import KINDS, Switch, switch_of

log = structlog.get_logger(__name__)
ROWS = "SELECT id, xmin::text, ctid::text FROM triggers_source WHERE kind = ANY(%s::text[]) AND enabled"
READ = "SELECT id, slug, kind, settings FROM triggers_source WHERE id = ANY(%s::uuid[])"


class Switches:
    """The enabled switches, indexed like triggers. Those of a row that did not change are kept."""

    def __init__(self) -> None:
        self.by_id: dict[UUID, Switch] = {}
        self.by_rule: dict[UUID, Switch] = {}
        self.rows: dict[UUID, tuple[str, str]] = {}
        self.index = Index([])

    def refresh(self) -> None:
        rows = {id: (xmin, ctid) for id, xmin, ctid in fetch(ROWS, [KINDS])}
        edited = {id for id in rows.keys() | self.rows.keys() if rows.get(id) != self.rows.get(id)}
        if edited:
            kept = {id: switch for id, switch in self.by_id.items() if id not in edited}
            self.by_id = kept | _read(edited & rows.keys())
            self.by_rule = {rule.id: switch for switch in self.by_id.values() for rule in switch.rules}
            self.index = Index(rule for switch in self.by_id.values() for rule in switch.rules)
        self.rows = rows


def _read(ids: set[UUID]) -> dict[UUID, Switch]:
    found = {}
    for id, slug, kind, settings in fetch(READ, [list(ids)]):
        try:
            found[id] = switch_of(id, slug, kind, json.loads(settings))
        except (ValueError, TypeError, AttributeError):  # no door stores such settings; SQL may
            log.exception("absence.switch_unreadable", source=slug)
    return found
