"""Sources that cannot be read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runs.sign import BAD, More, Problem, Sign, age, fault, is_raised, span

SQL = f"""
SELECT source.slug, reading.error, reading.remedy, {age("reading.failing_since")} AS seconds
FROM triggers_reading reading JOIN triggers_source source ON source.id = reading.source_id AND source.enabled
WHERE reading.failing_since IS NOT NULL
ORDER BY {is_raised("'source:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A source that its runner has not been able to read for so many seconds."""

    slug: str
    error: str
    remedy: str
    seconds: float


def problems(rows: Sequence[Unreadable]) -> Iterator[Problem]:
    for source in rows:
        yield fault(
            name=f"source:{source.slug}",
            seconds=source.seconds,
            text=f"Source {source.slug} has not been readable for {span(source.seconds)}: {source.error.rstrip('.')}. "
            "Its messages wait there.",
            remedy=source.remedy
            or "Check that its server answers and that the settings and the secret of the source are right. It is tried again "
            "at least every minute and goes on where it stopped.",
        )


UNREADABLE = Sign(
    name="unreadable",
    sql=SQL,
    row=Unreadable,
    problems=problems,
    kinds=("source", "sources"),
    more=More(name="sources", severity=BAD, what="Sources that cannot be read"),
)
