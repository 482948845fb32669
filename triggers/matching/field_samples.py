"""The fields that recent events of a source and types have: offered to people who write a filter, a key or an input mapping."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.kernel.redaction import MARK, SECRET_FIELD, shown_json
from triggers.matching.index import Rule
from triggers.matching.payload import read_payloads
from triggers.matching.recent import recent_events
from triggers.models import Event

EVENTS = 50
LARGEST = 256 * 2**10  # characters of a payload; larger ones are left out
AT_ONCE = 10  # payloads that are read together
DEPTH = 6  # levels below event.data
ELEMENTS = 20  # of a list
COUNTED = 2_000  # paths; an object whose keys are ids has any number of them
OFFERED = 200  # paths, the most frequent
LONGEST = 60  # characters of an example

ELEMENT = "[]"  # in a path: an element of a list
PLAIN = re.compile(r"(?!(?:true|false|null|in)\Z)[A-Za-z_][A-Za-z0-9_]*")
JSON_TYPES = {
    bool: "boolean",
    int: "number",
    float: "number",
    str: "string",
    list: "list",
    dict: "object",
    type(None): "null",
}

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class SeenField:
    """A field of events. `example`: one of its values, or MARK; `literal`: the example as CEL, if a filter may compare with it;
    `count`: how many events have it; `guards`: clauses that are false for events without it, and `element_guards` for elements
    of its list."""

    path: Path
    types: Sequence[str]
    example: str
    literal: str
    count: int
    guards: Sequence[str] = ()
    element_guards: Sequence[str] = ()

    @property
    def name(self) -> str:
        return expression_of(self.path).replace("[0]", "[]")

    @property
    def in_filter(self) -> str:
        """A clause that compares it with the example."""
        compared = f" == {self.literal}" if self.literal else ""
        outer, inner = self._parted
        asked = " && ".join([*self.element_guards, f"{inner}{compared}"])
        return " && ".join([*self.guards, f"{outer}.exists(item, {asked})" if inner else f"{outer}{compared}"])

    @property
    def in_key(self) -> str:
        return expression_of(self.path)

    @property
    def in_input(self) -> str:
        outer, inner = self._parted
        if not inner:
            return outer
        having = f".filter(item, {' && '.join(self.element_guards)})" if self.element_guards else ""
        return f"{outer}{having}.map(item, {inner})"

    @property
    def _parted(self) -> tuple[str, str]:
        """The expression of its list, and of the field of an element; or its own, and nothing."""
        if ELEMENT not in self.path:
            return expression_of(self.path), ""
        at = self.path.index(ELEMENT)
        return expression_of(self.path[:at]), expression_of(("item", *self.path[at + 1 :]))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """`types`: those of the newest events of the source, and how many there are of each; `events`: how many were read;
    `left_out`: how many are too large; `has_more`: whether there are more fields than are offered."""

    fields: Sequence[SeenField]
    types: Mapping[str, int]
    events: int
    left_out: int = 0
    has_more: bool = False


def seen_fields(rule: Rule) -> Seen:
    """The fields of the newest events of a rule's source and types."""
    recent = recent_events(rule, EVENTS)
    events, left_out = recent.events(), 0
    counts: Counter[Path] = Counter()
    sparse = set[Path]()
    values: dict[Path, list[Any]] = {}
    for begin in range(0, len(events), AT_ONCE):
        some = events[begin : begin + AT_ONCE]
        payloads = read_payloads([event.pk for event in some], most=LARGEST)
        for event in some:
            payload = payloads.get(event.pk)
            if payload is not None and payload.without_data:
                left_out += 1
                continue
            for path, value in _fields_of(event, payload.value if payload else None, sparse).items():
                if path in counts or len(counts) < COUNTED:
                    counts[path] += 1
                    values.setdefault(path, []).append(value)
    read = len(events) - left_out
    fields = [
        _seen(path, counts, values[path], read, sparse) for path in counts if not _is_object_alone(path, values[path])
    ]
    fields.sort(key=lambda one: (one.path[1] == "data", -one.count, one.path))
    return Seen(
        fields=fields[:OFFERED], types=recent.types, events=read, left_out=left_out, has_more=len(fields) > OFFERED
    )


def expression_of(path: Path) -> str:
    """The path as CEL; of a list its first element."""
    return path[0] + "".join(_step(name) for name in path[1:])


def _step(name: str) -> str:
    if name == ELEMENT:
        return "[0]"
    return f".{name}" if PLAIN.fullmatch(name) else f"[{json.dumps(name, ensure_ascii=False)}]"


def _fields_of(event: Event, data: Any, sparse: set[Path]) -> dict[Path, Any]:
    envelope = {"type": event.type, "source": event.source.slug, "subject": event.subject}
    found: dict[Path, Any] = {("event", name): value for name, value in envelope.items() if value}
    for path, value in _walk(data, ("event", "data"), DEPTH, sparse):
        found.setdefault(path, value)
    return found


def _walk(value: Any, path: Path, levels: int, sparse: set[Path]) -> Iterator[tuple[Path, Any]]:
    """Each field with its value; the elements of a list count as one. Adds to `sparse` what some elements of a list lack."""
    if path[-1] != ELEMENT:
        yield path, value
    if levels == 0:
        return
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _walk(inner, (*path, name), levels - 1, sparse)
    elif isinstance(value, list) and ELEMENT not in path:
        elements = [list(_walk(inner, (*path, ELEMENT), levels - 1, sparse)) for inner in value[:ELEMENTS]]
        having = Counter(path for element in elements for path, _ in element)
        sparse.update(path for path, count in having.items() if count < len(elements))
        yield from (found for element in elements for found in element)


def _is_object_alone(path: Path, values: Sequence[Any]) -> bool:
    """Whether the value is an object whose fields are offered instead of it."""
    return all(isinstance(value, dict) and value for value in values) and len(path) < DEPTH + 2


def _seen(path: Path, counts: Mapping[Path, int], values: Sequence[Any], events: int, sparse: set[Path]) -> SeenField:
    types = list(dict.fromkeys(JSON_TYPES[type(value)] for value in values))
    example, literal = _example(path, next((value for value in values if value not in (None, "", [], {})), values[0]))
    return SeenField(
        path=path,
        types=types,
        example=example,
        literal=literal,
        count=counts[path],
        guards=_guards(path, counts, events),
        element_guards=_element_guards(path, sparse),
    )


def _example(path: Path, value: Any) -> tuple[str, str]:
    """The value in short, and as CEL."""
    if any(SECRET_FIELD.search(name) for name in path):
        return MARK, ""
    clean = shown_json(value) if isinstance(value, str) else value
    if isinstance(clean, (list, dict)):
        what = "element" if isinstance(clean, list) else "field"
        return f"{len(clean):,} {what}{'' if len(clean) == 1 else 's'}", ""
    shown = json.dumps(clean, ensure_ascii=False)
    if len(shown) > LONGEST:
        return f"{shown[:LONGEST]}…", ""
    return shown, shown if clean == value and value is not None else ""


def _guards(path: Path, counts: Mapping[Path, int], events: int) -> list[str]:
    """A guard for each step of the path that some of the events lack."""
    steps = path.index(ELEMENT) if ELEMENT in path else len(path)
    found, parent = [], events
    for end in range(3, steps + 1):
        own = counts[path[:end]]
        if own < parent:
            found.append(_is_there(path[:end]))
        parent = own
    return found


def _element_guards(path: Path, sparse: set[Path]) -> list[str]:
    """A guard for each step of the path that some elements of the list lack."""
    if ELEMENT not in path:
        return []
    first = path.index(ELEMENT) + 2
    return [_is_there(("item", *path[first - 1 : end])) for end in range(first, len(path) + 1) if path[:end] in sparse]


def _is_there(path: Path) -> str:
    if PLAIN.fullmatch(path[-1]):
        return f"has({expression_of(path)})"
    return f"{json.dumps(path[-1], ensure_ascii=False)} in {expression_of(path[:-1])}"
