"""Try a rule on recent events with the dispatcher's own matching, without starting runs, and explain each miss clause by clause.

Expressions are evaluated in another process, so that this one keeps serving: at most SECONDS and MOST_BYTES of payloads."""

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal
from uuid import uuid4

from agents.kernel.redaction import MARK, SECRET_FIELD, shown
from triggers.matching.expressions.cel import Question, compile_each, in_short
from triggers.matching.expressions.clauses import Clause, clauses_of
from triggers.matching.expressions.evaluator import Evaluator, Subject
from triggers.matching.expressions.message_patterns import literal
from triggers.matching.index import Rule
from triggers.matching.match import case_of, decide, subject_of
from triggers.matching.matches import Match, Refusal
from triggers.matching.payload import NOTHING, Payload, read_payloads
from triggers.matching.pending import item_of
from triggers.matching.recent import LOOKED_AT, recent_events
from triggers.models import Event

SECONDS = 10.0  # for all events of a trial
MOST_BYTES = 16 * 2**20  # of payloads
AT_ONCE = 10  # payloads that are read together
SHOWN = 50
SHORT = 160  # characters of a value
MOST_PARTS = 100  # clauses and fields that are explained

EMPTY = Subject(
    envelope={"id": "", "type": "", "source": "", "subject": "", "time": "2026-01-01T00:00:00+00:00"}, data='""'
)

Result = Literal["yes", "no", "error", "not tried"]
State = Literal["true", "false", "error", "value"]
Known = Mapping[str, tuple[str, str]]  # by expression: its value in short, or its error
Clean = Callable[[str], str]  # takes out the secrets that stand in the event: others, an expression made up


@dataclass(frozen=True, kw_only=True)
class Line:
    """A clause of the filter, a key or an input, as one event sees it. `reads`: the fields it reads, and their values."""

    text: str
    state: State
    level: int = 0
    why: str = ""
    reads: Sequence[tuple[str, str]] = ()
    is_group: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The result for one event; `lines` explain a miss or an error."""

    event: Event
    result: Result
    why: str = ""
    key: str = ""
    input: Mapping[str, str] = field(default_factory=dict)
    lines: Sequence[Line] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Trial:
    """`types`: the types of the newest events of its source, how many there are of each, and whether the rule listens to it.
    `looked_at`: the number of the newest events that are searched for such types, at most."""

    verdicts: Sequence[Verdict]
    types: Sequence[tuple[str, int, bool]]
    looked_at: int = LOOKED_AT

    @property
    def matching(self) -> int:
        return sum(verdict.result == "yes" for verdict in self.verdicts)


def fault_of_regex(text: str) -> str:
    """Why the text is no regular expression of RE2; empty if it is one."""
    with Evaluator() as evaluator:
        [answer] = evaluator.answers(EMPTY, [Question(filter=f"event.data.matches({literal(text)})")])
    return answer.error or ""


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


def try_rule(rule: Rule, most: int = SHOWN) -> Trial:
    # Also without an overlap policy that needs it, the key is shown.
    overlap = "queue" if rule.key else rule.overlap
    rule = replace(rule, enabled=True, paused_reason=None, is_resuming=False, overlap=overlap)
    rule = replace(rule, compiled=compile_each((rule.filter, rule.key, *rule.input.values())))
    recent = recent_events(rule, most)
    heard = recent.listened_to(rule)
    with Evaluator() as evaluator:
        verdicts = list(_verdicts(recent.events(), rule, evaluator))
    return Trial(verdicts=verdicts, types=[(type, count, type in heard) for type, count in recent.types.items()])


def _verdicts(events: Sequence[Event], rule: Rule, evaluator: Evaluator) -> Iterator[Verdict]:
    until, read = time.monotonic() + SECONDS, 0
    for begin in range(0, len(events), AT_ONCE):
        some = events[begin : begin + AT_ONCE]
        payloads = read_payloads([event.pk for event in some]) if rule.reads_data and read < MOST_BYTES else {}
        for event in some:
            if time.monotonic() > until:
                yield Verdict(
                    event=event, result="not tried", why=f"time limit of {SECONDS:g} s for all events reached"
                )
            elif rule.reads_data and read >= MOST_BYTES:
                yield Verdict(
                    event=event, result="not tried", why=f"limit of {MOST_BYTES // 2**20} MiB of payloads reached"
                )
            else:
                yield _verdict(event, rule, payloads.get(event.pk, NOTHING), evaluator)
        read += sum(len(payload.text) for payload in payloads.values())


def _verdict(event: Event, rule: Rule, payload: Payload, evaluator: Evaluator) -> Verdict:
    item = item_of(event)
    subject = subject_of(item, payload)
    clean = partial(shown, of=f"{json.dumps(subject.envelope, default=str)} {payload.text}")
    [result] = decide(item, [case_of(item, rule)], payload, evaluator)
    if isinstance(result, Match):
        key = result.key.partition(":")[2] if result.key else ""
        mapped = {name: shown_safely(name, in_short(one), clean) for name, one in (result.input or {}).items()}
        return Verdict(event=event, result="yes", key=shown_safely(rule.key, key, clean), input=mapped)
    expressions = [rule.key, *rule.input.values()] if isinstance(result, Refusal) else []
    lines = _explain(rule.filter, list(filter(None, expressions)), subject, evaluator, clean)
    if isinstance(result, Refusal):
        return Verdict(event=event, result="error", why=clean(result.reason), lines=lines)
    return Verdict(event=event, result="no", why=_first_fault(lines), lines=lines)


def _explain(filter: str, others: Sequence[str], subject: Subject, evaluator: Evaluator, clean: Clean) -> list[Line]:
    """The value of each clause of the filter and of each other expression."""
    root = clauses_of(filter) if filter else Clause(text="")
    values = [clauses_of(text) for text in others]
    asked = [text for leaf in (*root.leaves, *values) for text in (leaf.text, *leaf.reads) if text]
    parts = list(dict.fromkeys(asked))[:MOST_PARTS]
    [answer] = evaluator.answers(subject, [Question(parts=parts)])
    if answer.error:
        return [Line(text=filter, state="error", why=clean(answer.error))]
    known = dict(zip(parts, answer.parts, strict=True))
    return [
        *(_lines(root, known, 0, clean) if filter else ()),
        *(_line(one, known, 0, clean, is_value=True) for one in values),
    ]


def _lines(clause: Clause, known: Known, level: int, clean: Clean) -> list[Line]:
    """The clause, and its parts below it. The outermost && is not named: all of its parts must be true."""
    if clause.kind == "clause":
        return [_line(clause, known, level, clean)]
    below = [_lines(part, known, level + (clause.kind == "any" or level > 0), clean) for part in clause.parts]
    if clause.kind == "all" and not level:
        return [line for lines in below for line in lines]
    states = {lines[0].state for lines in below}
    decisive: State = "true" if clause.kind == "any" else "false"
    otherwise: State = "false" if clause.kind == "any" else "true"
    state: State = decisive if decisive in states else "error" if "error" in states else otherwise
    head = Line(
        text="one of these" if clause.kind == "any" else "all of these", state=state, level=level, is_group=True
    )
    return [head, *(line for lines in below for line in lines)]


def _line(clause: Clause, known: Known, level: int, clean: Clean, *, is_value: bool = False) -> Line:
    value, error = known.get(clause.text, ("", f"not looked at: the filter has more than {MOST_PARTS} parts"))
    reads = [(text, _read(text, known, clean)) for text in clause.reads if text != clause.text or not is_value]
    if error:
        return Line(text=clause.text, state="error", level=level, why=clean(error), reads=reads)
    if is_value:
        return Line(
            text=clause.text, state="value", level=level, why=shown_safely(clause.text, value, clean), reads=reads
        )
    if value not in ("true", "false"):
        why = f"has the value {shown_safely(clause.text, value, clean)}, which is neither true nor false"
        return Line(text=clause.text, state="error", level=level, why=why, reads=reads)
    return Line(text=clause.text, state="true" if value == "true" else "false", level=level, reads=reads)


def _read(text: str, known: Known, clean: Clean) -> str:
    value, error = known.get(text, ("", "not looked at"))
    return clean(error) if error else shown_safely(text, value, clean)


def _first_fault(lines: Sequence[Line]) -> str:
    return next((f"{line.text} is false" for line in lines if line.state == "false" and not line.is_group), "false")


def shown_safely(path: str, value: str, clean: Clean) -> str:
    """A value as people may see it: in short, and without secrets. `path`: the field or expression that it comes from."""
    if SECRET_FIELD.search(path):
        return MARK
    text = clean(value)
    return text if len(text) <= SHORT else f"{text[:SHORT]}…"
