"""Slugs of triggers and sources."""

import re
from collections.abc import Iterator

from django.utils.text import slugify

SLUG = re.compile(r"[-a-zA-Z0-9_]{1,100}")  # as the forms of the console accept them


def slug_problems(slug: str) -> Iterator[str]:
    """The fault of a slug, with a valid one to use instead."""
    if not SLUG.fullmatch(slug):
        fix = slugify(slug)[:100] or "orders"
        yield f"slug: must be letters, digits, hyphens and underscores, 100 at most, such as {fix!r}"
