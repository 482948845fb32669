"""Pure: which triggers want this event. By type first (a dictionary, then the few globs), then by CEL."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from fnmatch import fnmatchcase
from functools import lru_cache
from hashlib import sha256
from typing import Any
from uuid import UUID

import cel

from runs.policy import Policy
from triggers.intake import Intake

VARIABLES = {"event"}
FIELDS = "id, type, source, subject, time, data"
GLOB = frozenset("*?[")
KEY_BYTES = 1000  # of a key's value; an index entry has room for 2,700
# Names a comprehension binds, such as x in `event.data.items.exists(x, x.paid)`.
BOUND = re.compile(r"\b(?:all|exists|exists_one|map|filter)\(\s*(\w+)\s*,")


class ExpressionError(ValueError):
    """A CEL expression does not compile, or gave something it may not give here; the message says what and where."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A trigger as the dispatcher sees it."""

    id: UUID
    slug: str
    agent: str
    source: str = ""
    types: tuple[str, ...] = ()
    filter: str = ""
    input: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    key_limit: int = 1
    overlap: str = "allow"
    policy: Policy = field(default_factory=Policy)
    intake: Intake = field(default_factory=Intake)
    problem: str = ""
    enabled: bool = True
    paused_reason: str | None = None

    @property
    def is_paused(self) -> bool:
        return self.paused_reason is not None

    @property
    def reads_data(self) -> bool:
        return bool(self.filter or self.key or self.input)

    @property
    def has_key(self) -> bool:
        return self.overlap != "allow"

    @property
    def has_group(self) -> bool:
        return self.has_key or self.intake.needs_group


class Index:
    """The triggers, found by id, and the enabled ones by (source, type)."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.by_id: dict[UUID, Rule] = {}
        self.exact: dict[str, list[Rule]] = defaultdict(list)
        self.globs: list[tuple[str, Rule]] = []
        for rule in sorted(rules, key=lambda rule: rule.slug):
            self.by_id[rule.id] = rule
            for pattern in rule.types if rule.enabled else ():
                if GLOB & set(pattern):
                    self.globs.append((pattern, rule))
                else:
                    self.exact[pattern].append(rule)

    def candidates(self, source: str, type: str) -> list[Rule]:
        """The triggers that listen to this type from this source, before their filters."""
        found = [*self.exact.get(type, ()), *(rule for pattern, rule in self.globs if fnmatchcase(type, pattern))]
        return list({rule.id: rule for rule in found if rule.source in ("", source)}.values())


@lru_cache(maxsize=4096)
def compile_expression(text: str) -> cel.Program:
    """Compile CEL over `event`; ExpressionError names what is wrong."""
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise ExpressionError(str(error)) from error
    unknown = set(program.variables()) - VARIABLES - set(BOUND.findall(text))
    if unknown:
        raise ExpressionError(f"{text!r} knows no {', '.join(sorted(unknown))}; it may use event ({FIELDS})")
    return program


def context_of(event: Mapping[str, Any]) -> cel.Context:
    """The event as expressions see it, handed over to CEL once."""
    return cel.Context(variables={"event": dict(event)})


def evaluate(text: str, event: cel.Context) -> Any:
    """The value of a CEL expression over an event; ExpressionError if it raises."""
    program = compile_expression(text)
    try:
        return program.execute(event)
    except Exception as error:
        raise ExpressionError(f"{text!r}: {type(error).__name__}: {error}") from error


def passes(rule: Rule, event: cel.Context) -> bool:
    """Does the event pass the trigger's filter? ExpressionError if it raises or gives no boolean."""
    if not rule.filter:
        return True
    value = evaluate(rule.filter, event)
    if not isinstance(value, bool):
        raise ExpressionError(f"{rule.filter!r} gave {value!r}, which is neither true nor false")
    return value


def group_of(rule: Rule, event: cel.Context) -> str:
    """What the event's key says, within its trigger: concurrency, rate and windows are counted by it. Empty where nothing
    is. ExpressionError if the key's value is no plain scalar."""
    if not rule.has_group:
        return ""
    value = evaluate(rule.key, event) if rule.key else ""
    if not isinstance(value, (str, int, float, bool)):
        raise ExpressionError(f"{rule.key!r} gave {value!r}; a key is a string, a number or a boolean")
    encoded = str(value).encode()
    return f"{rule.id}:{value if len(encoded) <= KEY_BYTES else f'sha256:{sha256(encoded).hexdigest()}'}"


def input_of(rule: Rule, event: cel.Context) -> dict[str, Any]:
    """The input mapping's values, times as RFC 3339; ExpressionError if one is no JSON."""
    return {name: _as_json(expression, evaluate(expression, event)) for name, expression in rule.input.items()}


def _as_json(expression: str, value: Any) -> Any:
    try:
        return json.loads(json.dumps(value, allow_nan=False, default=_time_as_text))
    except (TypeError, ValueError) as error:
        raise ExpressionError(f"{expression!r} gave a value that is no JSON: {error}") from error


def _time_as_text(value: Any) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{type(value).__name__} {value!r}")
