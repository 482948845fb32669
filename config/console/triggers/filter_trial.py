"""Show the trial of a rule: each event, whether it matches, and the clauses of a miss."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar
from uuid import uuid4

from config.console.parts.links import event_link
from config.console.parts.moments import moment
from config.console.parts.sections import Section, Table
from triggers.matching.index import Rule
from triggers.matching.recent import LOOKED_AT
from triggers.matching.trial import Line, Trial, try_rule

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


def rule_from(values: Mapping[str, Any]) -> Rule:
    """A rule for matching only, from the match settings of a form or a trigger."""
    return Rule(
        id=uuid4(),
        slug="trial",
        agent="",
        source=values["source"] or "",
        types=tuple(values["types"]),
        filter=values["filter"],
        key=values["key"],
        input=values["input"] or {},
    )


def try_on_recent(values: Mapping[str, Any]) -> Section:
    rule = rule_from(values)
    if not rule.types:
        return Table(title="Recent events", headers=(), rows=[], empty="It listens to no event types.")
    trial = try_rule(rule)
    return TrialSection(
        title=f"Recent events: {trial.matching} of {len(trial.verdicts)} match",
        rows=_rows(trial),
        others=[(type, count) for type, count, is_heard in trial.types if not is_heard],
        empty=f"No event of its types and source among the newest {LOOKED_AT:,} events.",
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
