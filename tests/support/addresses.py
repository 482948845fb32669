"""Every address that answers a GET, of the console and of the API, for rows of `make_one_of_each`."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.urls import URLPattern, URLResolver, get_resolver

from config.api import router

ARGUMENT = re.compile(r"<[^>]+>")


def pages(rows: Mapping[str, Any], *more: tuple[str, Any]) -> list[str]:
    """Of the console: lists, pages, forms, dialogs and parts that scripts fetch, of each row and of `more` rows by noun."""
    found: dict[str, None] = {}
    for route, name in _routes(get_resolver().url_patterns):
        arguments = ARGUMENT.findall(route)
        if not route.startswith("admin/") or "(?P" in route or len(arguments) > 1:
            continue
        nouns = [noun for noun, _ in (*rows.items(), *more) if name.startswith(f"{noun}_")]
        noun = max(nouns, key=len, default="")
        if not arguments:
            found[f"/{route}"] = None
        for one in [row for other, row in (*rows.items(), *more) if other == noun and arguments]:
            found["/" + ARGUMENT.sub(str(one.pk), route)] = None
    return list(found)


def answers(rows: Mapping[str, Any]) -> list[str]:
    """Of the API."""
    by_model = {noun.partition("_")[2]: row for noun, row in rows.items()}
    found = []
    for prefix, resource, basename in router.registry:
        lookup = getattr(resource, "lookup_field", "pk")
        value = getattr(by_model.get(basename), lookup, "default")
        for route in router.get_routes(resource):
            if "get" in router.get_method_map(resource, route.mapping):
                path = route.url.format(prefix=prefix, lookup=value, trailing_slash="/")
                found.append(f"/api/v1/{path.strip('^$')}")
    return found


def _routes(patterns: Iterable[URLPattern | URLResolver], prefix: str = "") -> Iterator[tuple[str, str]]:
    for one in patterns:
        route = prefix + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from _routes(one.url_patterns, route)
        else:
            yield route, one.name or ""
