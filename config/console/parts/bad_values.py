"""Answers 404 or 400, not 500, if a URL or form of the console holds a value that no object can have."""

from collections.abc import Callable
from typing import Any

import structlog
from django.contrib import admin
from django.contrib.admin.utils import unquote
from django.core.exceptions import ValidationError
from django.db import DataError
from django.db.models import Field
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.views.defaults import bad_request, page_not_found

log = structlog.get_logger(__name__)

# Raised by a field that converts its value (an id that is not a UUID) and by PostgreSQL (a number out of range, U+0000).
MALFORMED = (ValidationError, DataError, OverflowError)


class AnswerMalformed:
    """Middleware: 404 for such a URL, 400 for such a form."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        return self.get_response(request)

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: dict[str, Any]) -> HttpResponse | None:
        id, key = kwargs.get("object_id", kwargs.get("id")), _key_of(request)
        if id is None or key is None:
            return None
        try:
            key.to_python(unquote(id))
        except ValidationError as malformed:
            return page_not_found(request, malformed)
        return None

    def process_exception(self, request: HttpRequest, exception: Exception) -> HttpResponse | None:
        if not isinstance(exception, MALFORMED) or not request.path.startswith(reverse("admin:index")):
            return None
        # Log the traceback, in case the cause is a bug of ours.
        log.warning("console.malformed", path=request.path, exc_info=exception)
        if request.method in ("GET", "HEAD"):
            return page_not_found(request, exception)
        return bad_request(request, exception)


def _key_of(request: HttpRequest) -> "Field[Any, Any] | None":
    """The primary key field of the page's model, e.g. of `admin:runs_run_change`."""
    match = request.resolver_match
    if match is None or match.namespace != admin.site.name or not match.url_name:
        return None
    models = (model._meta for model in admin.site._registry)
    return next((one.pk for one in models if match.url_name.startswith(f"{one.app_label}_{one.model_name}_")), None)
