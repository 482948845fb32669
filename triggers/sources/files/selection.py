"""Which files of a directory count, by their names."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property
from typing import Any

from triggers.sources.polling.novelty import digest


def patterns_in(text: str) -> list[str]:
    """Patterns separated by commas."""
    return [pattern.strip() for pattern in text.split(",") if pattern.strip()]


@dataclass(frozen=True)
class Selection:
    """A pattern without a slash is compared with the name, one with a slash with the path below the directory; `*` in it also stands
    for slashes. What is ignored, files and folders, is so by its name. Files with the marker's ending are markers. The prefix is the
    beginning of a key in a bucket."""

    patterns: str
    ignored: str
    marker: str = ""
    is_deep: bool = True
    prefix: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields from which `Selection(**fields)` recreates this selection."""
        return {
            "patterns": self.patterns,
            "ignored": self.ignored,
            "marker": self.marker,
            "is_deep": self.is_deep,
            "prefix": self.prefix,
        }

    @property
    def digest(self) -> str:
        """A stored digest. A field that is added later must not change it at its default, or each source would begin
        again.
        """
        prefix = f", prefix={self.prefix!r}" if self.prefix else ""
        return digest(
            f"Selection(patterns={self.patterns!r}, ignored={self.ignored!r}, marker={self.marker!r}, is_deep={self.is_deep!r}{prefix})"
        )

    def wants(self, relative: bytes) -> bool:
        """Whether the selection includes the file."""
        *folders, name = relative.split(b"/")
        if not relative.startswith(self.prefix.encode()):
            return False
        if (folders and not self.is_deep) or not all(map(self.enters, folders)) or not self.enters(name):
            return False
        if self.marker and name.endswith(self.marker.encode()):
            return False
        return self._by_name(name) or self._by_path(relative)

    def enters(self, name: bytes) -> bool:
        """Whether a folder or file of this name is included."""
        return not self._is_ignored(name)

    @cached_property
    def _by_name(self) -> Callable[[bytes], bool]:
        return _matcher([pattern for pattern in patterns_in(self.patterns) if "/" not in pattern])

    @cached_property
    def _by_path(self) -> Callable[[bytes], bool]:
        return _matcher([pattern.lstrip("/") for pattern in patterns_in(self.patterns) if "/" in pattern])

    @cached_property
    def _is_ignored(self) -> Callable[[bytes], bool]:
        return _matcher(patterns_in(self.ignored))


def _matcher(patterns: list[str]) -> Callable[[bytes], bool]:
    if not patterns:
        return lambda name: False
    matches = re.compile("|".join(map(translate, patterns)).encode()).match
    return lambda name: matches(name) is not None
