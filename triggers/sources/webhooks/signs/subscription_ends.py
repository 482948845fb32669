"""Sources whose subscription at their provider ends."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any

from runs.sign import BAD, WARNING, More, Problem, Sign, span
from triggers.sources.webhooks.scheme import schemes

SEEN = 200  # events of a source, the newest, that say when its subscriptions end
NO_BODY = sha256(b"").hexdigest()  # of those events, by which an index finds them
SQL = f"""
SELECT source.slug, subscription.topic, extract(epoch FROM subscription.ends - clock_timestamp())::float8 AS "left"
FROM triggers_source source CROSS JOIN LATERAL (
  SELECT coalesce(nullif(max(subject), ''), max(resource)) AS topic, max(ends) AS ends FROM (
    SELECT subject, data->>'resource' AS resource, (data->>'expires')::timestamptz AS ends FROM triggers_event
    WHERE source_id = source.id AND body_sha256 = %(no_body)s::text AND body_sha256 <> '' AND dispatched_at IS NOT NULL
    ORDER BY seq DESC LIMIT {SEEN}) newest
  GROUP BY resource
  HAVING max(ends) BETWEEN clock_timestamp() - interval '7 days' AND clock_timestamp() + interval '1 day'
  ORDER BY max(ends) LIMIT 1) subscription
WHERE source.enabled AND source.kind = ANY(%(ending_kinds)s::text[])
ORDER BY source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Ending:
    """A source whose subscription at its provider ends, or has ended: the first of those that do so within a day."""

    slug: str
    topic: str | None
    left: float


def problems(rows: Sequence[Ending]) -> Iterator[Problem]:
    for source in rows:
        topic = f" to {source.topic}" if source.topic else ""
        when = f"ends in {span(source.left)}" if source.left > 0 else f"ended {span(-source.left)} ago"
        yield Problem(
            name=f"ending:{source.slug}",
            severity=WARNING if source.left > 0 else BAD,
            text=f"The subscription of source {source.slug}{topic} {when}; its provider sends nothing after that.",
            remedy="Renew it at the provider, as the set-up steps on the source's page say. The first delivery of the new "
            "subscription ends this problem; otherwise it ends after a week.",
            lasted=timedelta(seconds=max(-source.left, 0)),
        )


def parameters() -> Mapping[str, Any]:
    ending = [name for name, scheme in schemes().items() if scheme.subscription_ends]
    return {"ending_kinds": ending, "no_body": NO_BODY}


SUBSCRIPTION_ENDS = Sign(
    name="ending",
    sql=SQL,
    row=Ending,
    problems=problems,
    kinds=("ending",),
    parameters=parameters,
    more=More(name="ending", severity=WARNING, what="Sources whose subscription ends"),
)
