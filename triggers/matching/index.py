"""Pure: an index of triggers, which finds those that may match an event without checking the others."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from hashlib import sha256
from typing import Any
from uuid import UUID

from runs.models.policy import Policy
from triggers.matching.expressions.cel import MISSING, Equality, Expression, ExpressionError, compiled
from triggers.matching.flow_control import Intake

GLOB = frozenset("*?[")
KEY_BYTES = 1000  # of a key's value; an index entry has at most 2,700
Path = tuple[str, ...]
FieldOf = Callable[[Path], Any]  # the value of an event's field, or MISSING


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A trigger for the dispatcher. `compiled`: its expressions that compile, by text."""

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
    compiled: Mapping[str, Expression] = field(default_factory=dict, compare=False, repr=False)
    is_resuming: bool = False  # its held events are being dispatched
    has_bare_key: bool = False  # its key orders nothing and belongs to it alone: a match has the value itself

    @property
    def is_paused(self) -> bool:
        return self.paused_reason is not None

    @property
    def orders_events(self) -> bool:
        return self.has_key or self.intake.has_window

    @cached_property
    def reads_data(self) -> bool:
        return any(
            isinstance(found, Expression) and found.reads_data
            for found in map(self.expression, (self.filter, self.key, *self.input.values()))
        )

    @property
    def has_key(self) -> bool:
        return self.overlap != "allow"

    @property
    def has_group(self) -> bool:
        return self.has_key or self.intake.needs_group

    @property
    def equalities(self) -> tuple[Equality, ...]:
        """Necessary conditions of the filter."""
        found = self.expression(self.filter)
        return found.equalities if isinstance(found, Expression) else ()

    def expression(self, text: str) -> Expression | ExpressionError | None:
        """The compiled expression or its error; None: the text is empty."""
        return (self.compiled.get(text) or compiled(text)) if text else None


class Listeners:
    """Rules with the same type and source, indexed by fields that their filters compare with literals.

    Each rule is indexed by one equality of its filter: the one whose literals the fewest rules share. For an event that has
    the field, only the rules with its value are candidates; the filters of the others are false. For an event without the
    field all of them are candidates, because their filters may raise.
    """

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = rules
        self.reads_data = any(rule.reads_data for rule in rules)
        self.always: list[Rule] = []
        self.by_field: dict[Path, dict[Any, list[Rule]]] = defaultdict(lambda: defaultdict(list))
        self.with_field: dict[Path, list[Rule]] = defaultdict(list)
        shared = Counter(
            (each.path, _comparable(literal)) for rule in rules for each in rule.equalities for literal in each.literals
        )
        for rule in rules:
            if not rule.equalities:
                self.always.append(rule)
                continue
            rarest = min(
                rule.equalities, key=lambda each: sum(shared[each.path, _comparable(one)] for one in each.literals)
            )
            self.with_field[rarest.path].append(rule)
            for literal in {_comparable(literal) for literal in rarest.literals}:
                self.by_field[rarest.path][literal].append(rule)

    def concerned(self, field_of: FieldOf) -> Iterator[Rule]:
        yield from self.always
        for path, rules in self.with_field.items():
            value = field_of(path)
            yield from rules if value is MISSING else self.by_field[path].get(_comparable(value), ())


def _comparable(value: Any) -> tuple[type, Any]:
    """A value that compares like CEL's `==`: 1 equals 1.0, and neither equals true or "1"."""
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, (int, float)):
        return float, value
    return (str, value) if isinstance(value, str) else (object, None)


class Index:
    """Triggers by id, and enabled ones by (type, source). Types that end in * are indexed by their prefix."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.by_id: dict[UUID, Rule] = {}
        exact: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        prefixes: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        globs: dict[tuple[str, str], list[Rule]] = defaultdict(list)
        for rule in sorted(rules, key=lambda rule: rule.slug):
            self.by_id[rule.id] = rule
            for pattern in dict.fromkeys(rule.types) if rule.enabled else ():
                if not GLOB & set(pattern):
                    exact[pattern, rule.source].append(rule)
                elif pattern.endswith("*") and not GLOB & set(pattern[:-1]):
                    prefixes[pattern[:-1], rule.source].append(rule)
                else:
                    globs[pattern, rule.source].append(rule)
        self.exact = {key: Listeners(rules) for key, rules in exact.items()}
        self.prefixes = {key: Listeners(rules) for key, rules in prefixes.items()}
        self.lengths = sorted({len(prefix) for prefix, _ in prefixes})
        self.globs = [
            (re.compile(translate(pattern)), source, Listeners(rules)) for (pattern, source), rules in globs.items()
        ]

    def listeners(self, source: str, type: str) -> list[Listeners]:
        found = [self.exact.get((type, each)) for each in ("", source)]
        lengths = [length for length in self.lengths if length <= len(type)]
        found += [self.prefixes.get((type[:length], each)) for length in lengths for each in ("", source)]
        found += [heard for glob, each, heard in self.globs if each in ("", source) and glob.match(type)]
        return [heard for heard in found if heard is not None]

    def paths(self, source: str, type: str) -> list[Path]:
        """The fields by which triggers of this type and source are indexed."""
        return sorted({path for heard in self.listeners(source, type) for path in heard.with_field})

    def candidates(self, source: str, type: str, field_of: FieldOf | None = None) -> list[Rule]:
        """The triggers that listen to this type and source, ordered by slug. With `field_of`, triggers whose filters are false
        for these fields are left out."""
        found = {
            rule.id: rule
            for heard in self.listeners(source, type)
            for rule in (heard.concerned(field_of) if field_of else heard.rules)
        }
        return sorted(found.values(), key=lambda rule: rule.slug)


def group_of(rule: Rule, key: str) -> str:
    """The global name of a key's value, by which concurrency, rate and windows count. Empty if the trigger counts
    nothing."""
    if not rule.has_group:
        return ""
    encoded = key.encode()
    return f"{rule.id}:{key if len(encoded) <= KEY_BYTES else f'sha256:{sha256(encoded).hexdigest()}'}"
