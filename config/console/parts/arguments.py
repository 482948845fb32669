"""The arguments of an approval as a person reads them: each under its name, texts with their line breaks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agents.kernel.redaction import shown_json
from config.console.parts.sections import Cell, pretty

MOST = 40  # arguments; more are read as JSON


@dataclass(frozen=True, kw_only=True)
class Argument:
    """`text`: without secrets. `is_text`: it is a string, not JSON of another value."""

    name: str
    text: str
    is_text: bool


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """A section of a page: the arguments, and below them the exact JSON."""

    template: ClassVar[str] = "admin/console/arguments.html"
    title: str
    value: Any
    note: Cell = ""

    @property
    def read(self) -> Sequence[Argument]:
        return read(self.value)

    @property
    def json(self) -> str:
        return pretty(shown_json(self.value))


def read(arguments: Any) -> Sequence[Argument]:
    """Empty where JSON is the best to read: no object, no or too many members. Members of objects are named with their path."""
    if not isinstance(arguments, Mapping):
        return ()
    found: list[Argument] = []
    for one in _flat(shown_json(arguments), ""):
        if len(found) == MOST:
            return ()
        found.append(one)
    return found


def _flat(value: Mapping[str, Any], path: str) -> Iterator[Argument]:
    for key, one in value.items():
        name = f"{path}{key}"
        if isinstance(one, Mapping) and one:
            yield from _flat(one, f"{name} › ")
        else:
            is_text = isinstance(one, str) and one != ""
            yield Argument(name=name, text=one if is_text else pretty(one), is_text=is_text)
