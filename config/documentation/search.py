"""Sections that contain all words of a search."""

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from config.documentation.page import Page

MOST = 30  # sections
LONGEST = 100  # characters of a search
AROUND = 90  # characters on each side of the first word
MARKUP = re.compile(r"[`*|]+|\]\([^)]*\)|\[|-{3,}|#{2,}")


class Found(NamedTuple):
    page: Page
    anchor: str
    title: str
    excerpt: str


class _Section(NamedTuple):
    anchor: str
    title: str
    text: str


def search(pages: Iterable[Page], words: str) -> list[Found]:
    """The best first: words in the title, then the words as they stand next to each other, then the number of words."""
    wanted = words[:LONGEST].lower().split()
    if not wanted:
        return []
    found = []
    for page in pages:
        for section in _sections(page):
            text = f"{section.title}\n{section.text}".lower()
            if all(word in text for word in wanted):
                in_title = sum(word in section.title.lower() for word in wanted)
                count = sum(text.count(word) for word in wanted)
                rank = (in_title, text.count(" ".join(wanted)), count)
                found.append((rank, Found(page, section.anchor, section.title, _excerpt(section, wanted))))
    return [hit for _, hit in sorted(found, key=lambda each: each[0], reverse=True)[:MOST]]


def _sections(page: Page) -> Iterator[_Section]:
    lines = page.source.splitlines()
    ends = [heading.line for heading in page.headings[1:]] + [len(lines)]
    for heading, end in zip(page.headings, ends, strict=True):
        text = " ".join(MARKUP.sub(" ", " ".join(lines[heading.line + 1 : end])).split())
        yield _Section(heading.anchor, heading.title, text)


def _excerpt(section: _Section, wanted: list[str]) -> str:
    text = section.text.lower()
    places = [place for word in (" ".join(wanted), *wanted) if (place := text.find(word)) >= 0]
    middle = places[0] if places else 0
    begin, end = max(0, middle - AROUND), middle + AROUND
    return f"{'…' if begin else ''}{section.text[begin:end].strip()}{'…' if end < len(section.text) else ''}"
