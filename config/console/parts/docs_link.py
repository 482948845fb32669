"""The link in the header of every page of the console to the page of the documentation that describes it."""

from typing import Any

from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from config.documentation.console_pages import docs_of_console


def docs_link(request: HttpRequest) -> dict[str, Any]:
    """A context processor; only the console's header evaluates it."""
    return {"docs_link": SimpleLazyObject(lambda: _docs_of(request))}


def _docs_of(request: HttpRequest) -> str:
    return docs_of_console(request.resolver_match.url_name or "" if request.resolver_match else "")
