"""Sources whose sender still uses an old secret, which ends soon."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import NEVER, WARNING, More, Problem, Sign, age, span
from triggers.sources.secrets import IS_VALID
from triggers.sources.webhooks.proof import MATCH_NOTED_EVERY

LEFT = timedelta(hours=6)  # before the old secret ends, a sender that still uses it is a problem
SQL = f"""
SELECT source.slug, extract(epoch FROM old.ends_at - clock_timestamp())::float8 AS left, {age("old.matched_at")} AS matched
FROM triggers_source source
CROSS JOIN LATERAL (SELECT id, created_at, last_matched_at FROM triggers_secret
  WHERE source_id = source.id ORDER BY id DESC LIMIT 1) newest
CROSS JOIN LATERAL (SELECT max(not_after) AS ends_at, max(last_matched_at) AS matched_at FROM triggers_secret secret
  WHERE source_id = source.id AND id < newest.id AND {IS_VALID}) old
WHERE source.enabled AND newest.last_matched_at IS NULL AND old.matched_at > newest.created_at + %(noted_every)s::interval
  AND old.ends_at < (SELECT clock_timestamp()) + %(rotation_left)s::interval
ORDER BY source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Rotation:
    """A source whose sender still uses the old secret, which ends in `left` seconds and matched `matched` seconds ago."""

    slug: str
    left: float
    matched: float


def problems(rows: Sequence[Rotation]) -> Iterator[Problem]:
    for rotation in rows:
        yield Problem(
            name=f"rotation:{rotation.slug}",
            severity=WARNING,
            text=f"The sender of source {rotation.slug} still uses the old secret, {span(rotation.matched)} ago at last. It ends in "
            f"{span(rotation.left)}; then every delivery is refused.",
            remedy="Enter the new secret at the sender. If it is lost, open the source and choose “New secret”, with enough time "
            "for the change.",
            alarm_after=NEVER,
        )


ROTATIONS = Sign(
    name="rotations",
    sql=SQL,
    row=Rotation,
    problems=problems,
    kinds=("rotation", "rotations"),
    parameters=lambda: {"noted_every": MATCH_NOTED_EVERY, "rotation_left": LEFT},
    more=More(name="rotations", severity=WARNING, what="Sources whose sender still uses an old secret"),
)
