"""A failover of PostgreSQL that was noticed in the last day."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import WARNING, Problem, Sign, age

SQL = f"""
SELECT previous AS was, identity AS now, noticed_at::text, known_until::text, {age("noticed_at")} AS age
FROM runs_primary WHERE previous <> '' AND noticed_at > clock_timestamp() - interval '1 day'
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Failover:
    """Server and timeline of both primaries; `known_until`: the newest known commit of the old primary that the new one has."""

    was: str
    now: str
    noticed_at: str
    known_until: str | None
    age: float


def problems(rows: Sequence[Failover]) -> Iterator[Problem]:
    for over in rows:
        known = over.known_until or "an unknown time"
        yield Problem(
            name="failover",
            severity=WARNING,
            text=f"PostgreSQL failed over from {over.was} to {over.now} (server/timeline), noticed at {over.noticed_at}. The new "
            f"primary has the old primary's commits up to {known}. Later commits may be lost, including events that were "
            "answered with 2xx and intents of at_most_once steps.",
            remedy="Compare your records with those of senders and called services after that time: docs/upgrade.md, "
            "“Failover”. This warning ends after a day.",
            lasted=timedelta(seconds=over.age),
        )


FAILOVER = Sign(name="failover", sql=SQL, row=Failover, problems=problems, kinds=("failover",), limit=None)
