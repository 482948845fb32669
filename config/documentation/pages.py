"""All pages, in the order of docs/README.md."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from django.conf import settings

from config.documentation.page import Page

GROUP = re.compile(r"(?m)^## (.+)$")
# Besides docs/*.md: pages that are read in the repository as well.
OTHERS = {
    "readme": "README.md",
    "bench": "bench/README.md",
    "contributing": "CONTRIBUTING.md",
    "changelog": "CHANGELOG.md",
}


@dataclass(frozen=True)
class Group:
    title: str
    pages: Sequence[Page]


@dataclass(frozen=True)
class Pages:
    by_slug: Mapping[str, Page]
    groups: Sequence[Group]  # the navigation

    @property
    def in_order(self) -> list[Page]:
        return [page for group in self.groups for page in group.pages]

    def around(self, page: Page) -> tuple[Page | None, Page | None]:
        """The page before and the page after it."""
        order = self.in_order
        if page not in order:
            return None, None
        place = order.index(page)
        return order[place - 1] if place else None, order[place + 1] if place + 1 < len(order) else None

    def at(self, file: Path, target: str) -> Page | None:
        """Where a link of this file leads."""
        path = (file.parent / target).resolve()
        return next((page for page in self.by_slug.values() if page.file == path), None)


def pages() -> Pages:
    """All pages, read once, and again when a file has changed."""
    files = dict(_files(settings.BASE_DIR.resolve()))
    return _read(tuple((slug, file, file.stat().st_mtime_ns) for slug, file in files.items()))


def _files(root: Path) -> Iterator[tuple[str, Path]]:
    for file in sorted((root / "docs").glob("*.md")):
        yield ("" if file.name == "README.md" else file.stem), file
    for slug, name in OTHERS.items():
        if (root / name).is_file():
            yield slug, root / name


@lru_cache(maxsize=1)
def _read(files: tuple[tuple[str, Path, int], ...]) -> Pages:
    found = Pages({slug: Page(slug, file) for slug, file, _ in files}, [])
    if "" not in found.by_slug:
        return found
    first = found.by_slug[""]
    _, *parts = GROUP.split(first.source)
    groups = []
    for title, text in zip(parts[::2], parts[1::2], strict=True):
        # The first link of each row of its table.
        named = [found.at(first.file, target) for target in re.findall(r"(?m)^\| \[[^\]]+\]\(([^)#]+)\)", text)]
        groups.append(Group(title, [page for page in named if page]))
    return Pages(found.by_slug, groups)
