"""The parts a detail page is made of."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from config.console.parts.moments import NEVER

Cell = Any


class Section(Protocol):
    """A part of a detail page, with its own template."""

    @property
    def template(self) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Labels and values; an empty value is left out."""

    template: ClassVar[str] = "admin/console/facts.html"
    title: str = ""
    rows: Sequence[tuple[str, Cell]]

    @property
    def shown(self) -> list[tuple[str, Cell]]:
        return [(label, value) for label, value in self.rows if value or value == 0 and value is not False]


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows under headers, or one sentence if there are no rows. `is_cards`: on a phone each row is a card, with its headers as labels."""

    template: ClassVar[str] = "admin/console/table.html"
    title: str
    headers: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    empty: str
    note: str = ""
    is_cards: bool = False

    @property
    def labelled(self) -> list[list[tuple[str, Cell, bool]]]:
        """The rows as cards have them: each cell with its header, and whether it has a value."""
        return [
            [(header, cell, cell not in ("–", NEVER)) for header, cell in zip(self.headers, row, strict=True)]
            for row in self.rows
        ]


@dataclass(frozen=True, kw_only=True)
class Text:
    """Preformatted text: a payload, a traceback."""

    template: ClassVar[str] = "admin/console/text.html"
    title: str
    text: str
    note: Cell = ""
    folded: bool = False


@dataclass(frozen=True, kw_only=True)
class Notice:
    """The most important fact about the object, at the top of the page."""

    template: ClassVar[str] = "admin/console/notice.html"
    text: Cell
    level: str = "info"
    details: Sequence[Cell] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class LiveNotice(Notice):
    """A notice of what is still going on: the page looks again by itself."""

    template: ClassVar[str] = "admin/console/live_notice.html"


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Two columns, which stand below each other where the page is narrow."""

    template: ClassVar[str] = "admin/console/beside.html"
    left: Sequence[Section]
    right: Sequence[Section]


@dataclass(frozen=True, kw_only=True)
class Live:
    """Sections that the page asks for again at `url` until they are final; `tag` is their entity tag. An empty `url`: they are final."""

    template: ClassVar[str] = "admin/console/live.html"
    sections: Sequence[Section]
    url: str = ""
    tag: str = ""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """A numbered list of what to do."""

    template: ClassVar[str] = "admin/console/steps.html"
    title: str
    steps: Sequence[Cell]
    note: str = ""


def pretty(value: Any) -> str:
    """Indented JSON."""
    return json.dumps(value, indent=2, ensure_ascii=False, sort_keys=False, default=str)


@dataclass(frozen=True, kw_only=True)
class Door:
    """A button that leads to a page, or opens the dialog of another page's button."""

    label: str
    url: str
    about: str = ""
    is_dialog: bool = False


@dataclass(frozen=True, kw_only=True)
class Doors:
    """A row of buttons."""

    template: ClassVar[str] = "admin/console/doors.html"
    doors: Sequence[Door]

    @property
    def rendered(self) -> SafeString:
        """For the cell of a table."""
        return render_to_string(self.template, {"section": self})
