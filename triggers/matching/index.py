"""Pure: an index of triggers, which finds those that may match an event without checking the others."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from fnmatch import translate
from functools import cached_property
from hashlib import sha256
from typing import Any
from uuid import UUID

from agents.kernel.reserved_types import FINISHED
from runs.models.policy import Policy
from triggers.matching.expressions.cel import MISSING, Expression, ExpressionError, compiled
from triggers.matching.expressions.conditions import Condition, Equality, Prefix, Range
from triggers.matching.flow_control import Intake
from triggers.matching.groups import Group, with_one, without_one

GLOB = frozenset("*?[")
KEY_BYTES = 1000  # of a key's value; an index entry has at most 2,700
Path = tuple[str, ...]
Key = tuple[str, str, str]  # "exact", "prefix" or "glob"; the type; the source
FEW = 100  # edits after which all rules of a type are placed again, and a quarter of its rules
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

    @cached_property
    def conditions(self) -> tuple[Condition, ...]:
        """Necessary ones of the filter."""
        found = self.expression(self.filter)
        return found.conditions if isinstance(found, Expression) else ()

    @property
    def equalities(self) -> list[Equality]:
        return [found for found in self.conditions if isinstance(found, Equality)]

    def expression(self, text: str) -> Expression | ExpressionError | None:
        """The compiled expression or its error; None: the text is empty."""
        return (self.compiled.get(text) or compiled(text)) if text else None


class Listeners:
    """Rules with the same type and source, indexed by fields that their filters compare with literals.

    Each rule is indexed by one condition of its filter: the equality whose literals the fewest rules share, or else a beginning of
    a text or a range of numbers. For an event that has the field, only the rules that its value passes are candidates; the filters
    of the others are false. For an event without the field, or with a value that has no order, all of them are candidates, because
    their filters may raise.
    """

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.by_id = {rule.id: rule for rule in rules}
        self.always: dict[UUID, Rule] = {}
        self.by_field: dict[Path, dict[Any, dict[UUID, Rule]]] = {}
        self.with_field: dict[Path, dict[UUID, Rule]] = {}
        self.groups: dict[tuple[type, Path], Group] = {}
        self.placed: dict[UUID, Condition] = {}
        self.edits = 0  # since all rules were placed
        self.shared = Counter(literal for rule in self.by_id.values() for literal in _literals(rule))
        for rule in self.by_id.values():
            self._place(rule)

    @cached_property
    def reads_data(self) -> bool:
        return any(rule.reads_data for rule in self.by_id.values())

    def edited(self, without: Set[UUID], added: Sequence[Rule]) -> "Listeners":
        """The same with other rules; this one stays as it is. The others keep the equalities by which they are indexed, until so many
        were edited that all are placed again."""
        removed = [rule for id, rule in self.by_id.items() if id in without]  # far more may be taken from others
        edits = self.edits + len(removed) + len(added)
        if edits > FEW + len(self.by_id) // 4:
            kept = (rule for id, rule in self.by_id.items() if id not in without)
            return Listeners([*kept, *added])
        new = Listeners()
        new.by_id, new.shared, new.placed, new.edits = dict(self.by_id), self.shared.copy(), dict(self.placed), edits
        new.always = dict(self.always)
        new.with_field = {path: dict(rules) for path, rules in self.with_field.items()}
        new.by_field = {path: dict(by_value) for path, by_value in self.by_field.items()}
        new.groups = dict(self.groups)
        for rule in removed:
            new._remove(rule)
        for rule in added:
            new.by_id[rule.id] = rule
            new.shared.update(_literals(rule))
            new._place(rule)
        return new

    def _place(self, rule: Rule) -> None:
        if not rule.conditions:
            self.always[rule.id] = rule
            return
        rarest = min(rule.conditions, key=self._rarity)
        self.placed[rule.id] = rarest
        if not isinstance(rarest, Equality):
            place = type(rarest), rarest.path
            self.groups[place] = with_one(self.groups.get(place), rule, rarest, is_shared=self.edits > 0)
            return
        self.with_field.setdefault(rarest.path, {})[rule.id] = rule
        by_value = self.by_field.setdefault(rarest.path, {})
        for _, value in set(_literals_of(rarest)):
            group = by_value.get(value, {})
            by_value[value] = group = dict(group) if self.edits else group  # another index may share it
            group[rule.id] = rule

    def _rarity(self, condition: Condition) -> tuple[int, float]:
        """Less for one that fewer events pass: an equality, a range with two ends, a beginning or a range that few rules share."""
        if isinstance(condition, Equality):
            return 0, sum(self.shared[literal] for literal in _literals_of(condition))
        if isinstance(condition, Range):
            return 1, len(self.by_id) / (2 if condition.low is None or condition.high is None else 4)
        return 1, self.shared[_beginning(condition)]

    def _remove(self, rule: Rule) -> None:
        del self.by_id[rule.id]
        self.shared -= Counter(_literals(rule))
        self.always.pop(rule.id, None)
        equality = self.placed.pop(rule.id, None)
        if equality is None:
            return
        if not isinstance(equality, Equality):
            place = type(equality), equality.path
            if group := without_one(self.groups[place], rule.id):
                self.groups[place] = group
            else:
                del self.groups[place]
            return
        _take_out(self.with_field, equality.path, rule.id)
        by_value = self.by_field[equality.path]
        for _, value in set(_literals_of(equality)):
            _take_out(by_value, value, rule.id)
        if not by_value:
            del self.by_field[equality.path]

    def concerned(self, field_of: FieldOf) -> Iterator[Rule]:
        yield from self.always.values()
        for path, rules in self.with_field.items():
            value = field_of(path)
            found = rules if value is MISSING else self.by_field[path].get(_comparable(value), {})
            yield from found.values()
        for (_, path), group in self.groups.items():
            yield from group.passed_by(field_of(path))

    @cached_property
    def paths(self) -> set[Path]:
        """The fields by which rules are indexed."""
        return {*self.with_field, *(path for _, path in self.groups)}


Literal = tuple[Path, Any]


def _literals_of(equality: Equality) -> list[Literal]:
    return [(equality.path, _comparable(literal)) for literal in equality.literals]


def _literals(rule: Rule) -> list[Literal]:
    beginnings = [_beginning(found) for found in rule.conditions if isinstance(found, Prefix)]
    return beginnings + [literal for equality in rule.equalities for literal in _literals_of(equality)]


def _beginning(prefix: Prefix) -> Literal:
    return prefix.path, (Prefix, prefix.text)


def _take_out(groups: dict[Any, dict[UUID, Rule]], key: Any, id: UUID) -> None:
    """Without this rule; a copy, because another index may share the group."""
    kept = {other: rule for other, rule in groups[key].items() if other != id}
    if kept:
        groups[key] = kept
    else:
        del groups[key]


def _comparable(value: Any) -> tuple[type, Any]:
    """A value that compares like CEL's `==`: 1 equals 1.0, and neither equals true or "1"."""
    if isinstance(value, bool):
        return bool, value
    if isinstance(value, (int, float)):
        return float, value
    return (str, value) if isinstance(value, str) else (object, None)


class Index:
    """Triggers by id, and enabled ones by (type, source). Types that end in * are indexed by their prefix."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self.by_id: dict[UUID, Rule] = {rule.id: rule for rule in rules}
        by_key: dict[Key, list[Rule]] = defaultdict(list)
        for rule in self.by_id.values():
            for key in keys_of(rule):
                by_key[key].append(rule)
        self.heard = {key: Listeners(rules) for key, rules in by_key.items()}

    def edited(self, without: Collection[UUID], added: Iterable[Rule]) -> "Index":
        """The index without the rules of these ids, and with others, which may have the same ids; this one stays as it is."""
        now = {rule.id: rule for rule in added}
        gone = {*without, *now}
        new = Index()
        new.by_id = {**{id: rule for id, rule in self.by_id.items() if id not in gone}, **now}
        new.heard = dict(self.heard)
        by_key: dict[Key, list[Rule]] = {key: [] for id in gone if id in self.by_id for key in keys_of(self.by_id[id])}
        for rule in now.values():
            for key in keys_of(rule):
                by_key.setdefault(key, []).append(rule)
        for key, rules in by_key.items():
            heard = new.heard.get(key, Listeners()).edited(gone, rules)
            if heard.by_id:
                new.heard[key] = heard
            else:
                new.heard.pop(key, None)
        return new

    @cached_property
    def lengths(self) -> list[int]:
        """Of the prefixes."""
        return sorted({len(pattern) for sort, pattern, _ in self.heard if sort == "prefix"})

    @cached_property
    def globs(self) -> list[tuple[re.Pattern[str], str, Listeners]]:
        return [
            (re.compile(translate(pattern)), source, heard)
            for (sort, pattern, source), heard in self.heard.items()
            if sort == "glob"
        ]

    def listeners(self, source: str, type: str) -> list[Listeners]:
        found = [self.heard.get(("exact", type, each)) for each in ("", source)]
        if type == FINISHED:
            return [heard for heard in found if heard is not None]
        lengths = [length for length in self.lengths if length <= len(type)]
        found += [self.heard.get(("prefix", type[:length], each)) for length in lengths for each in ("", source)]
        found += [heard for glob, each, heard in self.globs if each in ("", source) and glob.match(type)]
        return [heard for heard in found if heard is not None]

    def paths(self, source: str, type: str) -> list[Path]:
        """The fields by which triggers of this type and source are indexed."""
        return sorted({path for heard in self.listeners(source, type) for path in heard.paths})

    def candidates(self, source: str, type: str, field_of: FieldOf | None = None) -> list[Rule]:
        """The triggers that listen to this type and source, ordered by slug. With `field_of`, triggers whose filters are false
        for these fields are left out."""
        found = {
            rule.id: rule
            for heard in self.listeners(source, type)
            for rule in (heard.concerned(field_of) if field_of else heard.by_id.values())
        }
        return sorted(found.values(), key=lambda rule: rule.slug)


def keys_of(rule: Rule) -> set[Key]:
    """Where the index has the rule."""
    return {(*_sorted(pattern), rule.source) for pattern in rule.types} if rule.enabled else set()


def _sorted(pattern: str) -> tuple[str, str]:
    if not GLOB & set(pattern):
        return "exact", pattern
    if pattern.endswith("*") and not GLOB & set(pattern[:-1]):
        return "prefix", pattern[:-1]
    return "glob", pattern


def group_of(rule: Rule, key: str) -> str:
    """The global name of a key's value, by which concurrency, rate and windows count. Empty if the trigger counts
    nothing."""
    if not rule.has_group:
        return ""
    encoded = key.encode()
    return f"{rule.id}:{key if len(encoded) <= KEY_BYTES else f'sha256:{sha256(encoded).hexdigest()}'}"
