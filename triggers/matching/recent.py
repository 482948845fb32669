"""The newest events of a trigger's source and types: for the trial of a filter, and for the fields that a form
offers.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from runs.db.sql import fetch
from triggers.matching.index import Index, Rule
from triggers.models import Event

LOOKED_AT = 5_000  # newest events
MOST_TYPES = 1_000  # types that are not among the newest
OF_A_TYPE = 500  # events of such a type that are looked at
# The limits stand inside, so that no condition makes it read the whole table.
NEWEST = """
SELECT newest.id, source.slug, newest.type
FROM (SELECT id, source_id, type, target_id, payload_removed_at FROM triggers_event ORDER BY id DESC LIMIT %s::int) newest
JOIN triggers_source source ON source.id = newest.source_id
WHERE newest.target_id IS NULL AND newest.payload_removed_at IS NULL
ORDER BY newest.id DESC
"""
# Steps from type to type on the index of dispatched events.
TYPES = """
WITH RECURSIVE one AS (
  (SELECT type FROM triggers_event WHERE dispatched_at IS NOT NULL ORDER BY type LIMIT 1)
  UNION ALL
  SELECT (SELECT type FROM triggers_event WHERE dispatched_at IS NOT NULL AND type > one.type ORDER BY type LIMIT 1)
  FROM one WHERE one.type IS NOT NULL)
SELECT type FROM one WHERE type IS NOT NULL LIMIT %s::int
"""
OF_TYPES = """
SELECT of_type.id, of_type.slug, of_type.type FROM unnest(%s::text[]) AS wanted (type) CROSS JOIN LATERAL (
  SELECT looked_at.id, source.slug, looked_at.type
  FROM (SELECT id, source_id, type, target_id, payload_removed_at FROM triggers_event
        WHERE type = wanted.type AND dispatched_at IS NOT NULL ORDER BY seq DESC LIMIT %s::int) looked_at
  JOIN triggers_source source ON source.id = looked_at.source_id
  WHERE looked_at.target_id IS NULL AND looked_at.payload_removed_at IS NULL AND %s::text IN ('', source.slug)
  ORDER BY looked_at.id DESC LIMIT %s::int) of_type
ORDER BY of_type.id DESC
"""

Row = tuple[UUID, str, str]  # id, slug of the source, type


@dataclass(frozen=True, kw_only=True)
class Recent:
    """The newest events of a trigger's source and types, newest first. `types`: all types among the newest events of
    its source, with the number of each.
    """

    ids: Sequence[UUID]
    types: Mapping[str, int]

    def listened_to(self, rule: Rule) -> set[str]:
        """The types among these that the rule listens to."""
        index = Index([rule])
        return {type for type in self.types if _listens(index, rule, type)}

    def events(self) -> list[Event]:
        events = Event.objects.filter(pk__in=self.ids).order_by("-id").select_related("source")
        return list(events.defer("body", "headers", "data"))


def recent_events(rule: Rule, most: int) -> Recent:
    index = Index([rule])
    newest = [row for row in _rows(NEWEST, LOOKED_AT) if rule.source in ("", row[1])]
    types = Counter(type for _, _, type in newest)
    fitting = [row for row in newest if index.candidates(row[1], row[2])][:most]
    if len(fitting) < most and rule.types:
        rare = [type for (type,) in fetch(TYPES, [MOST_TYPES]) if type not in types and _listens(index, rule, type)]
        older = _rows(OF_TYPES, rare[:most], OF_A_TYPE, rule.source, most)
        types.update(Counter(type for _, _, type in older))
        fitting += older[: most - len(fitting)]
    return Recent(ids=[id for id, _, _ in fitting], types=dict(types.most_common()))


def _listens(index: Index, rule: Rule, type: str) -> bool:
    return bool(index.listeners(rule.source, type))


def _rows(statement: str, *parameters: object) -> list[Row]:
    return [(id, source, type) for id, source, type in fetch(statement, list(parameters))]
