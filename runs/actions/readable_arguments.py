"""The arguments of an approval as a person reads them: each under its name, texts with their line breaks."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agents.kernel.hidden_characters import HIDDEN, in_sight

MOST = 40  # arguments; more are read as JSON


@dataclass(frozen=True, kw_only=True)
class Argument:
    """`is_text`: it is a string that shows as what it is, not JSON."""

    name: str
    text: str
    is_text: bool


def read(arguments: Any) -> Sequence[Argument]:
    """Empty where JSON is the best to read: no object, no or too many members. Members of objects are named with their path."""
    if not isinstance(arguments, Mapping):
        return ()
    found: list[Argument] = []
    for one in _flat(arguments, ""):
        if len(found) == MOST:
            return ()
        found.append(one)
    return found


def _flat(value: Mapping[str, Any], path: str) -> Iterator[Argument]:
    for key, one in value.items():
        name = f"{path}{in_sight(key)}"
        if isinstance(one, Mapping) and one:
            yield from _flat(one, f"{name} › ")
        else:
            is_text = isinstance(one, str) and one.strip() != "" and not HIDDEN.search(one)
            yield Argument(name=name, text=one if is_text else as_json(one), is_text=is_text)


def as_json(value: Any, *, indent: int | None = 2) -> str:
    """JSON in which each character is seen where it stands."""
    return in_sight(json.dumps(value, indent=indent, ensure_ascii=False))
