"""Sources that refuse deliveries, although their sender was authenticated before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import NEVER, WARNING, More, Problem, Sign, age, span
from triggers.sources.webhooks.proof import MATCH_NOTED_EVERY

# What was refused before the last authenticated delivery is over. Of the hour of that delivery, some may be counted that came before it.
SQL = f"""
SELECT source.slug, refused.count, refused.reason, {age("refused.first_at")} AS first, {age("refused.last_at")} AS last,
  {age("refused.proven_at")} AS proven
FROM (
  SELECT one.source_id, proven.at AS proven_at, sum(count) AS count, min(greatest(first_at, proven.at)) AS first_at,
    max(last_at) AS last_at, (array_agg(reason ORDER BY last_at DESC))[1] AS reason
  FROM triggers_refuseddelivery one
  JOIN (SELECT source_id, max(last_matched_at) AS at FROM triggers_secret GROUP BY source_id) proven ON proven.source_id = one.source_id
  WHERE hour > (SELECT clock_timestamp()) - interval '1 day' AND status = 401 AND last_at > proven.at + %(noted_every)s::interval
  GROUP BY one.source_id, proven.at) refused
JOIN triggers_source source ON source.id = refused.source_id AND source.enabled
ORDER BY EXISTS (SELECT FROM runs_incident incident
  WHERE incident.kind = 'source' AND incident.subject = source.slug AND incident.in_a_row > 0) DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Refusing:
    """A source that refuses deliveries, although its sender was authenticated before. The count is of the last day, since then;
    `first` and `last` (refused) and `proven` are seconds ago."""

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
            text=f"Source {source.slug} refuses deliveries, the last {span(source.last)} ago ({source.reason}). The last "
            f"authenticated delivery came {span(source.proven)} ago; {source.count:,} of the last day were refused since then.",
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
