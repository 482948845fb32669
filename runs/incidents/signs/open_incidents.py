"""Open incidents, and those of the last hour that opened without a message of their own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.conf import settings

from runs.sign import BAD, COUNTED, NAMED, NEVER, WARNING, Problem, Sign, count

SQL = f"""
SELECT count(*) FILTER (WHERE NOT muted) AS count, count(*) FILTER (WHERE muted) AS muted,
  count(*) FILTER (WHERE acknowledged AND NOT muted) AS acknowledged,
  coalesce((array_agg(name ORDER BY id DESC) FILTER (WHERE NOT muted))[:{NAMED}], '{{}}') AS names,
  count(*) FILTER (WHERE NOT muted AND NOT acknowledged AND told = '' AND tell_at IS NULL
    AND opened_at > (SELECT clock_timestamp()) - interval '1 hour') AS untold
FROM (SELECT id, kind || ' ' || name AS name, told, tell_at, opened_at, muted_at IS NOT NULL AS muted,
        acknowledged_at IS NOT NULL AS acknowledged FROM runs_incident
      WHERE opened_at IS NOT NULL AND closed_at IS NULL ORDER BY id DESC LIMIT {COUNTED}) incident
HAVING count(*) > 0
"""  # noqa: S608  (our own parts)
INCIDENTS = "incidents"  # the problem that incidents are open


@dataclass(frozen=True, kw_only=True)
class OpenIncidents:
    """Their count and the newest names, without those that are muted; `untold`: those without a message of their own."""

    count: int
    names: list[str]
    untold: int = 0
    muted: int = 0
    acknowledged: int = 0


def problems(rows: Sequence[OpenIncidents]) -> Iterator[Problem]:
    for found in rows:
        if not found.count:  # muted ones alone
            continue
        more = ", …" if found.count > len(found.names) else ""
        known = f" {found.acknowledged:,} acknowledged." if found.acknowledged else ""
        muted = f" {found.muted:,} muted." if found.muted else ""
        yield Problem(
            name=INCIDENTS,
            severity=WARNING,
            text=f"{count(found.count, 'incident')} open: {', '.join(found.names)}{more}.{known}{muted}",
            remedy="Open “Incidents”: read the cause of each, fix it, then requeue the failed runs in one step.",
            alarm_after=NEVER,
        )
        if found.untold:
            has = "incident has" if found.untold == 1 else "incidents have"
            yield Problem(
                name="many-incidents",
                severity=BAD,
                text=f"{found.untold:,} more {has} opened in the last hour than the {settings.WAKEFUL_INCIDENT_MESSAGES} that get a "
                "message of their own.",
                remedy="Many things fail at once: look for a cause that they share, such as a service that is away.",
            )


OPEN_INCIDENTS = Sign(
    name="incidents", sql=SQL, row=OpenIncidents, problems=problems, kinds=(INCIDENTS, "many-incidents")
)
