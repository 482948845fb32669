"""Dead man's switches that are down, and other switches that are down while no trigger listens to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, More, Problem, Sign, age, is_raised, span
from triggers.switches.switch import ABSENCE, OPENED, PING, REASONS

# SQL knows no [abc] and no ?: a type with one of these counts as one that is listened to.
SQL = f"""
SELECT source.slug, source.kind, timer.reason, {age("timer.opened_at")} AS seconds
FROM triggers_source source
CROSS JOIN LATERAL (SELECT reason, opened_at FROM triggers_switchtimer
  WHERE source_id = source.id AND state = 'open' ORDER BY opened_at LIMIT 1) timer
WHERE source.enabled AND (source.kind = %(ping)s::text OR source.kind = %(absence)s::text AND NOT EXISTS (
  SELECT FROM triggers_trigger listener CROSS JOIN unnest(listener.types) glob
  WHERE listener.enabled AND listener.source IN ('', source.slug)
    AND (glob ~ '[?[]' OR %(opened)s::text LIKE replace(replace(glob, '_', '\\_'), '*', '%%'))))
ORDER BY {is_raised("'switch-down:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class SwitchDown:
    """A switch that has been open for so many seconds."""

    slug: str
    kind: str
    reason: str
    seconds: float


def problems(rows: Sequence[SwitchDown]) -> Iterator[Problem]:
    for switch in rows:
        down = f"has been down for {span(switch.seconds)}: {REASONS.get(switch.reason, switch.reason)}"
        text = f"Dead man's switch {switch.slug} {down}."
        remedy = (
            "Look at the job that should ping it. The next ping of success ends this; a job that runs no more needs no "
            "switch: disable its source."
        )
        if switch.kind != PING:
            text = f"Switch {switch.slug} {down}. No trigger listens to it."
            remedy = (
                f"Look at what should send the event, which ends this, or let a trigger listen to {OPENED} of this source. "
                "If the event is no longer awaited, disable the source."
            )
        yield Problem(
            name=f"switch-down:{switch.slug}",
            severity=BAD,
            text=text,
            remedy=remedy,
            lasted=timedelta(seconds=switch.seconds),
        )


DOWN = Sign(
    name="down",
    sql=SQL,
    row=SwitchDown,
    problems=problems,
    kinds=("switch-down", "switches-down"),
    parameters=lambda: {"ping": PING, "absence": ABSENCE, "opened": OPENED},
    more=More(name="switches-down", severity=BAD, what="Switches that are down"),
)
