"""Remembers what the request contains: an answer never confirms that a text of it is a secret."""

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.request import RawPostDataException

from agents.kernel.redaction import said


class KnowWhatIsSaid:
    """Middleware for `agents.kernel.redaction.shown`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        token = said.set(cache(lambda: "\n".join(_texts_of(request))))
        try:
            return self.get_response(request)
        finally:
            said.reset(token)


def _texts_of(request: HttpRequest) -> Iterator[str]:
    """The path, parameters and body of a request, raw and decoded."""
    yield from (request.path, *_texts_in(dict(request.GET.lists())), *_texts_in(dict(request.POST.lists())))
    try:
        yield from _texts_in(request.body.decode(errors="replace"))
    except RawPostDataException:  # a form in parts, which POST has
        return


def _texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from (name, *_texts_in(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _texts_in(inner)
    elif isinstance(value, str):
        yield value
        if "\\" in value:  # JSON with escapes
            try:
                yield from _texts_in(json.loads(value))
            except (ValueError, RecursionError):
                return
