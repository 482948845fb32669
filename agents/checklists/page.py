"""A checklist as a page of text, such as HEARTBEAT.md: a line for each item, which people edit where they like.

    # Checklist of ops-watch

    - Are there failed runs?
    - Is the newest backup older than a day? (every 6h)
    - Is the disk full? (every 1h, paused)

A text of several lines goes on in indented lines. Headings and comments (`<!-- … -->`) are read over.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta

from agents.kernel.durations import parse_duration, text_of_duration

BOX = r"\[[ xX]?\]\s+(?=\S)"
ITEM = re.compile(rf"[-*+]\s+(?:{BOX})?(?=\S)")
MARKS = re.compile(r"\(((?:each run|paused|every [^(),]+)(?:,\s*(?:each run|paused|every [^(),]+))*)\)$")
INDENT = "  "


@dataclass(frozen=True, kw_only=True)
class PageItem:
    """An item as a page has it. `every` None: it is due at each run."""

    text: str
    every: timedelta | None = None
    paused: bool = False


def write_page(title: str, items: Iterable[PageItem], *, above: str = "") -> str:
    """The page that `read_page` reads as the same items. `above`: what stands above them instead of the title."""
    lines = [above or f"# {' '.join(title.split())}", ""]
    for item in items:
        first, *others = plain(f"{item.text}{_marks(item)}").split("\n")
        box = "[ ] " if re.match(BOX, first) else ""  # so that the text keeps its own
        lines += [f"- {box}{first}", *(f"{INDENT}{line}" if line else "" for line in others)]
    return "\n".join(lines).rstrip("\n") + "\n"


def above_items(page: str) -> tuple[str, bool]:
    """The lines above the first item of a page, and whether there are headings or comments further down."""
    lines, is_comment = plain(page).removeprefix("\ufeff").split("\n"), False
    for number, line in enumerate(lines):
        is_comment = (is_comment or line.startswith("<!--")) and "-->" not in line
        if ITEM.match(line) and not is_comment:
            return plain("\n".join(lines[:number])), any(one.startswith(("#", "<!--")) for one in lines[number:])
    return plain("\n".join(lines)), False


def read_page(text: str) -> list[PageItem]:
    """The items of a page. ValueError names the line that is none."""
    found: list[list[str]] = []
    is_comment = False
    for number, line in enumerate(plain(text).removeprefix("\ufeff").split("\n"), start=1):
        is_begun = line.startswith("<!--")
        if is_comment or is_begun:
            is_comment = "-->" not in line
        elif begun := ITEM.match(line):
            found.append([line[begun.end() :]])
        elif line[:1] in (" ", "\t") and line.strip() and found:
            found[-1].append(line.removeprefix("\t") if line[0] == "\t" else line.removeprefix(" ").removeprefix(" "))
        elif not line.strip():
            if found:
                found[-1].append("")  # of the item, if an indented line follows
        elif not line.startswith("#"):
            raise ValueError(
                f'line {number}: {line[:60]!r} is no item; begin it with "- ", or indent it if it belongs to the item above'
            )
    if is_comment:
        raise ValueError("a comment is not closed: end it with -->")
    return [_item("\n".join(lines).strip()) for lines in found]


def plain(text: str) -> str:
    """The text as a page has it: lines end with a newline, without spaces before it."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def _item(text: str) -> PageItem:
    marks = MARKS.search(text)
    if not marks:
        return PageItem(text=text)
    said = text[: marks.start()].rstrip()
    if not said:
        raise ValueError(f"an item has no text: {text[:60]!r}")
    every, paused = None, False
    for mark in re.split(r",\s*", marks[1]):
        if mark == "paused":
            paused = True
        elif mark != "each run":
            try:
                every = parse_duration(mark.removeprefix("every ").strip())
            except ValueError as error:
                raise ValueError(f"{said[:60]!r}: {error}") from None
    return PageItem(text=said, every=every, paused=paused)


def _marks(item: PageItem) -> str:
    every = f"every {text_of_duration(item.every)}" if item.every else ""
    if not every and not item.paused:
        # A text that ends as if with marks gets marks of its own, so that those stay text.
        return " (each run)" if MARKS.search(plain(item.text)) else ""
    return f" ({', '.join(filter(None, [every, 'paused' if item.paused else '']))})"
