"""Progress bars of work that takes a while."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, kw_only=True)
class Part:
    """A share of a progress bar, with its label."""

    name: str
    words: str
    count: int
    percent: float


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Section: progress by outcome; the page reloads it until the work has ended."""

    template: ClassVar[str] = "admin/console/progress.html"
    title: str
    total: int
    ended: int
    parts: Sequence[Part]
    goes_on: bool
    empty: str = "Nothing yet."
