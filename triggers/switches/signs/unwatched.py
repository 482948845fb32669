"""Switches that could not watch some events in the last day."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import WARNING, More, Problem, Sign, age, is_raised

SQL = f"""
SELECT source.slug, CASE WHEN turned_away_at > clock_timestamp() - interval '1 day' THEN turned_away ELSE 0 END AS turned_away,
  {age("turned_away_at")} AS turned_away_seconds,
  CASE WHEN failed_at > clock_timestamp() - interval '1 day' THEN error ELSE '' END AS error, {age("failed_at")} AS error_seconds
FROM triggers_switch switch JOIN triggers_source source ON source.id = switch.source_id AND source.enabled
WHERE greatest(turned_away_at, failed_at) > clock_timestamp() - interval '1 day'
ORDER BY {is_raised("'switch-keys:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class SwitchTrouble:
    """A switch that could not watch events in the last day: their keys were too many, or its filter or key failed on them."""

    slug: str
    turned_away: int
    turned_away_seconds: float | None
    error: str
    error_seconds: float | None


def problems(rows: Sequence[SwitchTrouble]) -> Iterator[Problem]:
    for switch in rows:
        if switch.turned_away:
            yield Problem(
                name=f"switch-keys:{switch.slug}",
                severity=WARNING,
                text=f"Switch {switch.slug} reached its limit of keys. {switch.turned_away:,} events with new keys are not watched.",
                remedy="Raise “Most keys” of the source, or use a key with fewer values. This warning ends a day after the last one.",
                lasted=timedelta(seconds=switch.turned_away_seconds or 0),
            )
        if switch.error:
            yield Problem(
                name=f"switch-error:{switch.slug}",
                severity=WARNING,
                text=f"The filter or the key of switch {switch.slug} failed on an event, which it did not see: {switch.error.rstrip('.')}.",
                remedy="Correct it under Edit on the page of the source. This warning ends a day after the last one.",
                lasted=timedelta(seconds=switch.error_seconds or 0),
            )


UNWATCHED = Sign(
    name="switches",
    sql=SQL,
    row=SwitchTrouble,
    problems=problems,
    kinds=("switch-keys", "switch-error", "switches"),
    more=More(name="switches", severity=WARNING, what="Switches that could not watch some events"),
)
