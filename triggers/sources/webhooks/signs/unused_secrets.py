"""Secrets of sources that no delivery uses."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import NEVER, WARNING, More, Problem, Sign, age, span
from triggers.sources.secrets import IS_VALID

UNUSED = timedelta(days=90)  # without a delivery that it proves, a valid secret is a problem
SQL = f"""
SELECT source.slug, secret.id AS number, {age("coalesce(secret.last_matched_at, secret.created_at)")} AS unused
FROM triggers_secret secret JOIN triggers_source source ON source.id = secret.source_id AND source.enabled
WHERE {IS_VALID} AND coalesce(secret.last_matched_at, secret.created_at) < (SELECT clock_timestamp()) - %(unused)s::interval
  AND EXISTS (SELECT FROM triggers_secret other WHERE other.source_id = source.id AND other.last_matched_at IS NOT NULL)
ORDER BY source.slug, secret.id
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class UnusedSecret:
    """A valid secret that has not matched a delivery for `unused` seconds; `number` is the one on the source's page."""

    slug: str
    number: int
    unused: float


def problems(rows: Sequence[UnusedSecret]) -> Iterator[Problem]:
    for secret in rows:
        yield Problem(
            name=f"unused-secret:{secret.slug}:{secret.number}",
            severity=WARNING,
            text=f"Secret {secret.number} of source {secret.slug} is valid, but no delivery has used it for {span(secret.unused)}.",
            remedy="If another secret is in use, choose “New secret” with 0 hours and enter it at the sender: that ends all others. "
            "If the source is no longer needed, disable it; if it is, check at the sender whether its deliveries are switched off.",
            lasted=timedelta(seconds=secret.unused),
            alarm_after=NEVER,
        )


UNUSED_SECRETS = Sign(
    name="unused_secrets",
    sql=SQL,
    row=UnusedSecret,
    problems=problems,
    kinds=("unused-secret", "unused-secrets"),
    parameters=lambda: {"unused": UNUSED},
    more=More(name="unused-secrets", severity=WARNING, what="Secrets that no delivery uses"),
)
