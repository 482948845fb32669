"""Dead man's switches that are down."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from runs.sign import BAD, More, Problem, Sign, age, is_raised, span
from triggers.switches.switch import PING, REASONS

SQL = f"""
SELECT source.slug, timer.reason, {age("timer.opened_at")} AS seconds
FROM triggers_source source
JOIN triggers_switchtimer timer ON timer.source_id = source.id AND timer.key = '' AND timer.state = 'open'
WHERE source.enabled AND source.kind = %(ping)s::text
ORDER BY {is_raised("'switch-down:' || source.slug")} DESC, source.slug
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class SwitchDown:
    """A dead man's switch that has been open for so many seconds."""

    slug: str
    reason: str
    seconds: float


def problems(rows: Sequence[SwitchDown]) -> Iterator[Problem]:
    for switch in rows:
        yield Problem(
            name=f"switch-down:{switch.slug}",
            severity=BAD,
            text=f"Dead man's switch {switch.slug} has been down for {span(switch.seconds)}: "
            f"{REASONS.get(switch.reason, switch.reason)}.",
            remedy="Look at the job that should ping it. The next ping of success ends this; a job that runs no more needs no "
            "switch: disable its source.",
            lasted=timedelta(seconds=switch.seconds),
        )


DOWN = Sign(
    name="down",
    sql=SQL,
    row=SwitchDown,
    problems=problems,
    kinds=("switch-down", "switches-down"),
    parameters=lambda: {"ping": PING},
    more=More(name="switches-down", severity=BAD, what="Dead man's switches that are down"),
)
