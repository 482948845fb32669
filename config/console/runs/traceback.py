"""A traceback with the frames of the agent's own code in sight, and those of Wakeful and of libraries folded."""

import re
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import ClassVar

import agents

# The lines of a frame are indented below its first one; in a group of exceptions all stand behind bars.
FRAME = re.compile(r'(?P<margin>[ |+]*)File "(?P<file>[^"]*)", line \d+')
LIBRARIES = ("/site-packages/", "/dist-packages/", f"/lib/python{sys.version_info.major}.", "<frozen ")
ROOMS = ("agents", "runs", "triggers", "config", "wakeful")


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Lines that follow each other; `frames`: how many of the framework's they are, folded."""

    text: str
    frames: int = 0

    @property
    def summary(self) -> str:
        return f"{self.frames} frame{'s' if self.frames > 1 else ''} of Wakeful and libraries"


@dataclass(frozen=True, kw_only=True)
class Traceback:
    template: ClassVar[str] = "admin/console/traceback.html"
    title: str
    pieces: Sequence[Piece]


def traceback_of(title: str, text: str) -> Traceback:
    """Whole, where no frame is the agent's own."""
    parts = list(_parts(text.splitlines()))
    if not any(is_frame and not _is_of_the_framework(lines) for is_frame, lines in parts):
        return Traceback(title=title, pieces=[Piece(text=text)])
    pieces = []
    for is_folded, alike in groupby(parts, key=lambda part: part[0] and _is_of_the_framework(part[1])):
        frames = [lines for _, lines in alike]
        text = "\n".join(line for lines in frames for line in lines)
        pieces.append(Piece(text=text, frames=len(frames) if is_folded else 0))
    return Traceback(title=title, pieces=pieces)


def _parts(lines: Iterable[str]) -> Iterable[tuple[bool, list[str]]]:
    """Each frame, and each line between frames."""
    frame: list[str] = []
    margin = ""
    for line in lines:
        found = FRAME.match(line)
        if frame and not found and line.startswith(f"{margin}  "):
            frame.append(line)
            continue
        if frame:
            yield True, frame
            frame = []
        if found:
            frame, margin = [line], found["margin"]
        else:
            yield False, [line]
    if frame:
        yield True, frame


def _is_of_the_framework(frame: Sequence[str]) -> bool:
    found = FRAME.match(frame[0])
    file = found["file"].replace("\\", "/") if found else ""
    return any(part in file for part in LIBRARIES) or file.startswith(_own_places())


@cache
def _own_places() -> tuple[str, ...]:
    root = Path(agents.__file__).parents[1]
    return (*(f"{root.as_posix()}/{room}/" for room in ROOMS), f"{sysconfig.get_path('stdlib')}/")
