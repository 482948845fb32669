"""Canonical JSON and its hashes: step arguments, approval digests and the matches of waits."""

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any


def match_of(match: Mapping[str, Any], source: str = "") -> tuple[str, str]:
    """The shape of a match and the hash of its values; an event is looked up by the hash of its own values in that shape.

    The shape is a JSON list of paths, or with a source `{"paths": […], "source": slug}`. Versions that know only lists
    never end a wait with a source, because they hash other values.
    """
    paths = sorted(match)
    values = [match[path] for path in paths]
    if source:
        return json.dumps({"paths": paths, "source": source}), hash_of([source, values])
    return json.dumps(paths), hash_of(values)


def source_in(shape: str) -> str:
    """The slug of the source whose events count; empty: events of any source."""
    asked = json.loads(shape or "[]")
    return str(asked["source"]) if isinstance(asked, dict) else ""


def paths_in(shape: str) -> list[str]:
    """The paths whose values an event is looked up by."""
    asked = json.loads(shape)
    return list(asked["paths"] if isinstance(asked, dict) else asked)


def hash_in(shape: str, source: str, data: Any) -> str | None:
    """The hash by which an event looks up waits of this shape; None: the event is from another source, or its data has no
    single value at one of the paths."""
    asked = json.loads(shape)
    if isinstance(asked, list):
        values = _values_at(asked, data)
        return None if values is None else hash_of(values)
    values = _values_at(asked["paths"], data)
    return None if values is None or asked["source"] != source else hash_of([source, values])


def as_read(text: str) -> Any:
    """JSON as PostgreSQL returns it, with the keys of each object ordered by length and then by bytes: a text that a
    body makes of it, such as a prompt, is the same on a replay.
    """
    return json.loads(text, object_pairs_hook=_ordered)


def _ordered(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return dict(sorted(pairs, key=_place_of)) if len(pairs) > 1 else dict(pairs)


def _place_of(pair: tuple[str, Any]) -> tuple[int, bytes]:
    name = pair[0].encode()
    return len(name), name


def _values_at(paths: Sequence[str], data: Any) -> list[Any] | None:
    values = []
    for path in paths:
        value = data
        for name in path.split("."):
            if not isinstance(value, dict) or name not in value:
                return None
            value = value[name]
        if isinstance(value, (dict, list)):
            return None
        values.append(value)
    return values


def hash_of(values: Sequence[Any]) -> str:
    return sha256(canonical(values).encode()).hexdigest()


def digest_of(question: str, arguments: Any) -> str:
    """The digest that binds a decision to the question and arguments of its approval."""
    return sha256(canonical({"question": question, "arguments": arguments}).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON as text, the same for equal values, also after a round trip through PostgreSQL."""
    return json.dumps(_numbers(value), sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def _numbers(value: Any) -> Any:
    # JSON has one kind of number: 7 and 7.0 are the same.
    match value:
        case float() if value.is_integer():
            return int(value)
        case dict():
            return {name: _numbers(inner) for name, inner in value.items()}
        case list() | tuple():
            return [_numbers(inner) for inner in value]
    return value
