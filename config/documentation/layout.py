"""The HTML of a page, for `/docs/` and for static pages."""

from pathlib import Path
from typing import Any

from django.template.loader import render_to_string

from config.documentation.page import Page
from config.documentation.pages import Pages


def address(page: Page, seen_from: Page | None) -> str:
    """Relative, so that the same page works at any place; `seen_from` None: from the first page."""
    up = "../" if seen_from and seen_from.slug else ""
    return f"{up}{page.slug}/" if page.slug else up or "./"


def layout(pages: Pages, page: Page | None, **more: Any) -> str:
    """The page among the others; None: what `more` has in its place."""
    before, after = pages.around(page) if page else (None, None)

    def resolve(file: Path, target: str) -> str:
        found = pages.at(file, target)
        return address(found, page) if found else ""

    def entry(other: Page | None) -> dict[str, Any] | None:
        return None if other is None else {"title": other.title, "url": address(other, page), "is_here": other is page}

    context = {
        "title": page.title if page else "Search",
        "content": page.html(resolve) if page else "",
        "chapters": page.chapters if page and page.slug else [],
        "groups": [(group.title, [entry(other) for other in group.pages]) for group in pages.groups],
        "home": address(pages.by_slug[""], page),
        "before": entry(before),
        "after": entry(after),
    }
    # Without the request: the context of the console costs queries, and these pages need none.
    return render_to_string("documentation/page.html", context | more)
