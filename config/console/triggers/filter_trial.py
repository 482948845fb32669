"""Show the trial of a rule: each event, whether it matches, and the clauses of a miss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from config.console.parts.links import event_link
from config.console.parts.moments import moment
from config.console.parts.sections import Section, Table
from triggers.matching.trial import Line, Trial, rule_from, try_rule

LEVELS = {"yes": "good", "no": "neutral", "error": "bad", "not tried": "warning"}


@dataclass(frozen=True, kw_only=True)
class TrialRow:
    event: Any
    type: str
    source: str
    received: Any
    result: str
    level: str
    why: str
    key: str
    input: Sequence[tuple[str, str]]
    lines: Sequence[Line]


@dataclass(frozen=True, kw_only=True)
class TrialSection:
    """A row for each event; `others`: types of the source that the rule does not listen to."""

    template: ClassVar[str] = "admin/console/trial.html"
    title: str
    rows: Sequence[TrialRow]
    others: Sequence[tuple[str, int]]
    empty: str


def try_on_recent(values: Mapping[str, Any]) -> Section:
    rule = rule_from(values)
    if not rule.types:
        return Table(title="Recent events", headers=(), rows=[], empty="It listens to no event types.")
    trial = try_rule(rule)
    return TrialSection(
        title=f"Recent events: {trial.matching} of {len(trial.verdicts)} match",
        rows=_rows(trial),
        others=[(type, count) for type, count, is_heard in trial.types if not is_heard],
        empty=f"No event of its types and source among the newest {trial.looked_at:,} events.",
    )


def _rows(trial: Trial) -> list[TrialRow]:
    return [
        TrialRow(
            event=event_link(one.event.pk),
            type=one.event.type,
            source=one.event.source.slug,
            received=moment(one.event.received_at),
            result=one.result,
            level=LEVELS[one.result],
            why=one.why,
            key=one.key,
            input=list(one.input.items()),
            lines=one.lines,
        )
        for one in trial.verdicts
    ]
