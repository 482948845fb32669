"""Sources that lost messages before they were read, in the last day."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import COUNTED, WARNING, More, Problem, Sign, age, is_raised, span

SQL = f"""
SELECT source.slug, kept.number, kept.messages, kept.reasons, {age("kept.last_at")} AS last
FROM triggers_source source CROSS JOIN LATERAL (
  SELECT count(*) AS number, CASE WHEN bool_and(count IS NOT NULL) THEN sum(count) END AS messages,
    array_agg(DISTINCT reason) AS reasons, max(at) AS last_at
  FROM (SELECT count, reason, at FROM triggers_sourcegap
        WHERE source_id = source.id AND at > (SELECT clock_timestamp()) - interval '1 day' ORDER BY at DESC LIMIT {COUNTED}) newest
  HAVING count(*) > 0) kept
ORDER BY {is_raised("'source-gap:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Gapped:
    """A source that lost messages before they were read, in the last day: the number of gaps, how many messages (None: not known of
    each gap), why, and the age in seconds of the last gap."""

    slug: str
    number: int
    messages: int | None
    reasons: list[str]
    last: float


def problems(rows: Sequence[Gapped]) -> Iterator[Problem]:
    for source in rows:
        more = "at least " if source.number == COUNTED else ""
        lost = "an unknown number of messages" if source.messages is None else f"{more}{source.messages:,} messages"
        yield Problem(
            name=f"source-gap:{source.slug}",
            severity=WARNING,
            text=f"Source {source.slug} has {more}{source.number:,} gap{'' if source.number == 1 else 's'} of the last day: {lost} "
            f"({', '.join(source.reasons)}) had no event. The last gap was found {span(source.last)} ago.",
            remedy="Open the source: its page lists the gaps. Let the sender send again what is needed. If messages are trimmed, let the "
            "stream keep them for longer. This warning ends a day after the last gap.",
            lasted=timedelta(seconds=source.last),
        )


GAPS = Sign(
    name="source_gaps",
    sql=SQL,
    row=Gapped,
    problems=problems,
    kinds=("source-gap", "source-gaps"),
    more=More(name="source-gaps", severity=WARNING, what="Sources that lost messages before they were read"),
)
