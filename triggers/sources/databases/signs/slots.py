"""Sources whose replication slot is in trouble."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, WARNING, More, Problem, Sign, age, is_raised

SQL = f"""
SELECT source.slug, watched.problem, watched.remedy, watched.is_bad, {age("watched.problem_since")} AS seconds
FROM triggers_watchedslot watched JOIN triggers_source source ON source.id = watched.source_id
WHERE watched.problem <> ''
ORDER BY {is_raised("'source-slot:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class SourceSlot:
    """The replication slot of a source, what has been wrong with it for so many seconds, and what to do."""

    slug: str
    problem: str
    remedy: str
    is_bad: bool
    seconds: float


def problems(rows: Sequence[SourceSlot]) -> Iterator[Problem]:
    for slot in rows:
        yield Problem(
            name=f"source-slot:{slot.slug}",
            severity=BAD if slot.is_bad else WARNING,
            text=slot.problem,
            remedy=slot.remedy,
            lasted=timedelta(seconds=slot.seconds),
        )


SLOTS = Sign(
    name="source_slots",
    sql=SQL,
    row=SourceSlot,
    problems=problems,
    kinds=("source-slot", "source-slots"),
    more=More(name="source-slots", severity=BAD, what="Sources whose replication slot is in trouble"),
)
