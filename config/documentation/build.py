"""Check the links of all pages, and write them as static pages."""

from collections.abc import Iterator
from pathlib import Path
from shutil import copyfile

from django.conf import settings

from config.documentation.layout import layout
from config.documentation.page import Page
from config.documentation.pages import Pages

STATIC = {"docs.css": "config/static/documentation/docs.css", "icon.svg": "config/static/console/icon.svg"}


def broken_links(pages: Pages) -> Iterator[str]:
    """Each link that leads to no file or no heading, and each page that docs/README.md does not name."""
    for page in pages.by_slug.values():
        for target, anchor in page.links:
            there = pages.at(page.file, target) if target else page
            shown = f"{page.file.relative_to(settings.BASE_DIR)}: {target}{'#' if anchor else ''}{anchor}"
            if there is None and not (page.file.parent / target).exists():
                yield f"{shown}: there is no such file"
            elif anchor and (there is None or anchor not in {heading.anchor for heading in there.headings}):
                yield f"{shown}: there is no such heading"
    named = [pages.by_slug[""], *pages.in_order]
    yield from (
        f"docs/README.md does not name {page.file.name}" for page in pages.by_slug.values() if page not in named
    )


def write(pages: Pages, folder: Path) -> int:
    """Write the pages as `<slug>/index.html`, for any web server. Returns their number."""
    for page in pages.by_slug.values():
        file = folder / page.slug / "index.html"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(_static(pages, page), encoding="utf-8")
    for name, source in STATIC.items():
        copyfile(settings.BASE_DIR / source, folder / name)
    return len(pages.by_slug)


def _static(pages: Pages, page: Page) -> str:
    up = "../" if page.slug else ""
    return layout(pages, page, stylesheet=f"{up}docs.css", icon=f"{up}icon.svg")
