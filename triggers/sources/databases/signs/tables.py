"""Watched tables whose triggers are missing, or that have missed changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, WARNING, More, Problem, Sign, age, fault, is_raised

SQL = f"""
SELECT source.slug, error, remedy, {age("failing_since")} AS seconds,
  CASE WHEN gap_at > clock_timestamp() - interval '1 day' THEN gap ELSE '' END AS gap, {age("gap_at")} AS gap_seconds,
  CASE WHEN missed_at > clock_timestamp() - interval '1 day' THEN missed ELSE '' END AS missed,
  {age("missed_at")} AS missed_seconds
FROM triggers_watchedtable watched JOIN triggers_source source ON source.id = watched.source_id AND source.enabled
WHERE failing_since IS NOT NULL OR greatest(gap_at, missed_at) > clock_timestamp() - interval '1 day'
ORDER BY {is_raised("'table:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class TableTrouble:
    """A watched table whose triggers cannot be made, or have missed changes in the last day; with ages in seconds."""

    slug: str
    error: str
    remedy: str
    seconds: float | None
    gap: str
    gap_seconds: float | None
    missed: str
    missed_seconds: float | None


def problems(rows: Sequence[TableTrouble]) -> Iterator[Problem]:
    for table in rows:
        if table.seconds is not None:
            yield fault(
                name=f"table:{table.slug}",
                seconds=table.seconds,
                text=f"The triggers of source {table.slug} are not as they should be: {table.error.rstrip('.')}.",
                remedy=table.remedy,
            )
        if table.gap:
            yield Problem(
                name=f"table-gap:{table.slug}",
                severity=WARNING,
                text=f"Source {table.slug}: {table.gap}",
                remedy="Its triggers are there again. *Sweep now* on the page of the source finds the rows that have changed, if "
                "the source had swept before. This warning ends after a day.",
                lasted=timedelta(seconds=table.gap_seconds or 0),
            )
        if table.missed:
            yield Problem(
                name=f"table-missed:{table.slug}",
                severity=WARNING,
                text=f"The last sweep of source {table.slug} {table.missed}",
                remedy="Find out what writes to the table without its triggers: session_replication_role = replica, ALTER TABLE … "
                "DISABLE TRIGGER, a restore, or statements of more rows than the source allows. This warning ends after a day.",
                lasted=timedelta(seconds=table.missed_seconds or 0),
            )


TABLES = Sign(
    name="tables",
    sql=SQL,
    row=TableTrouble,
    problems=problems,
    kinds=("table", "table-gap", "table-missed", "tables"),
    more=More(name="tables", severity=BAD, what="Watched tables with problems"),
)
