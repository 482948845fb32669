"""Previews of a form's effect: by its Preview button, and with scripts while the user types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

BUTTON = "_preview"  # in a form's POST: the Preview button was pressed, so do not save


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Section of a form: its meaning as text and as a table, or its errors. It loads the next preview from `url`."""

    template: ClassVar[str] = "admin/console/preview.html"
    url: str
    words: str = ""
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    note: str = ""
    wrong: Sequence[str] = ()
    action: tuple[str, str] | None = None  # another button of the form: its name and label


def is_asked(request: HttpRequest) -> bool:
    """Whether the form was posted for a preview, not to save it."""
    return BUTTON in request.POST


def wrong_with(form: forms.Form) -> list[str]:
    """The errors of a form, each with its field's label if the message does not name it."""
    return [f"{_label(form, name)}{error}" for name, errors in form.errors.items() for error in errors]


def respond(request: HttpRequest, preview: Preview) -> HttpResponse:
    """The response that replaces the shown preview."""
    return TemplateResponse(request, "admin/console/preview_body.html", {"section": preview})


def _label(form: forms.Form, name: str) -> str:
    is_plain = name in (NON_FIELD_ERRORS, next(iter(form.fields)))
    return "" if is_plain else f"{form[name].label}: "
