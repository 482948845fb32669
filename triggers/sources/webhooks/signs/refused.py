"""Sources that refuse deliveries, although their sender was authenticated before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import NEVER, WARNING, More, Problem, Sign, age, span
from triggers.sources.webhooks.proof import MATCH_NOTED_EVERY

SQL = f"""
SELECT source.slug, refused.count, refused.reason, {age("greatest(refused.first_at, proven.at)")} AS first,
  {age("refused.last_at")} AS last, {age("proven.at")} AS proven
FROM (
  SELECT source_id, sum(count) AS count, min(first_at) AS first_at, max(last_at) AS last_at,
    (array_agg(reason ORDER BY last_at DESC))[1] AS reason
  FROM triggers_refuseddelivery WHERE hour > (SELECT clock_timestamp()) - interval '1 day' AND status = 401
  GROUP BY source_id) refused
JOIN triggers_source source ON source.id = refused.source_id AND source.enabled
CROSS JOIN LATERAL (SELECT max(last_matched_at) AS at FROM triggers_secret WHERE source_id = source.id) proven
WHERE refused.last_at > proven.at + %(noted_every)s::interval
ORDER BY EXISTS (SELECT FROM runs_incident incident
  WHERE incident.kind = 'source' AND incident.subject = source.slug AND incident.in_a_row > 0) DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Refusing:
    """A source that refuses deliveries, although its sender was authenticated before. The count is of the last day; `first` and
    `last` (refused) and `proven` are seconds ago."""

    slug: str
    count: int
    reason: str
    first: float
    last: float
    proven: float


def problems(rows: Sequence[Refusing]) -> Iterator[Problem]:
    for source in rows:
        yield Problem(
            name=f"refusing:{source.slug}",
            severity=WARNING,
            text=f"Source {source.slug} refuses deliveries: {source.count:,} in the last day, the last {span(source.last)} ago "
            f"({source.reason}). The last authenticated delivery came {span(source.proven)} ago.",
            remedy="Compare the sender's secret with the source's: open the source, then “Enter a secret” or “New secret”. "
            "If the refused deliveries come from a stranger, do nothing: the sender's next delivery ends this warning.",
            lasted=timedelta(seconds=source.last),
            alarm_after=NEVER,
        )


REFUSED = Sign(
    name="refused",
    sql=SQL,
    row=Refusing,
    problems=problems,
    kinds=("refusing",),
    parameters=lambda: {"noted_every": MATCH_NOTED_EVERY},
    more=More(name="refusing", severity=WARNING, what="Sources that refuse deliveries"),
)
