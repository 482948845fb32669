"""Sources with messages that could not become events, in the last day."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import COUNTED, WARNING, More, Problem, Sign, age, is_raised, span

SQL = f"""
SELECT source.slug, kept.count, kept.reason, {age("kept.last_at")} AS last
FROM triggers_source source CROSS JOIN LATERAL (
  SELECT count(*) AS count, max(last_at) AS last_at, (array_agg(reason ORDER BY last_at DESC))[1] AS reason
  FROM (SELECT reason, last_at FROM triggers_poisonmessage
        WHERE source_id = source.id AND last_at > (SELECT clock_timestamp()) - interval '1 day'
        ORDER BY last_at DESC LIMIT {COUNTED}) newest
  HAVING count(*) > 0) kept
ORDER BY {is_raised("'poison:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Poisoned:
    """A source with messages that could not become events: their count in the last day, and the reason and age in seconds of
    the last one."""

    slug: str
    count: int
    reason: str
    last: float


def problems(rows: Sequence[Poisoned]) -> Iterator[Problem]:
    for source in rows:
        more = "At least " if source.count == COUNTED else ""
        yield Problem(
            name=f"poison:{source.slug}",
            severity=WARNING,
            text=f"{more}{source.count:,} message{'' if source.count == 1 else 's'} of source {source.slug} could not become events "
            f"in the last day. The last one, {span(source.last)} ago: {source.reason}",
            remedy="Open the source: its page lists these messages. Correct the sender or the settings of the source, and send "
            "again what is needed. This warning ends a day after the last one.",
            lasted=timedelta(seconds=source.last),
        )


POISON = Sign(
    name="poison",
    sql=SQL,
    row=Poisoned,
    problems=problems,
    kinds=("poison",),
    more=More(name="poison", severity=WARNING, what="Sources with messages that cannot become events"),
)
