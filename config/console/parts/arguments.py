"""The arguments of an approval as a section of a page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from agents.kernel.redaction import shown_json
from config.console.parts.sections import Cell
from runs.actions import readable_arguments
from runs.actions.readable_arguments import Argument


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """Each argument, and below them the exact JSON."""

    template: ClassVar[str] = "admin/console/arguments.html"
    title: str
    value: Any
    note: Cell = ""

    @property
    def read(self) -> Sequence[Argument]:
        return read(self.value)

    @property
    def json(self) -> str:
        return readable_arguments.as_json(shown_json(self.value))


def read(arguments: Any) -> Sequence[Argument]:
    """Without secrets."""
    return readable_arguments.read(shown_json(arguments))
