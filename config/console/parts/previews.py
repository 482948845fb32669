"""What a form would do, told while it is being filled in: by its Preview button, and with scripts as one types."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django import forms
from django.core.exceptions import NON_FIELD_ERRORS
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

BUTTON = "_preview"  # in a form's POST: its Preview button was pressed, so nothing is to be saved


@dataclass(frozen=True, kw_only=True)
class Preview:
    """Section of a form: what it says, in words and as a table, or what is wrong with it. It asks `url` for the next."""

    template: ClassVar[str] = "admin/console/preview.html"
    url: str
    words: str = ""
    headers: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    note: str = ""
    wrong: Sequence[str] = ()


def is_asked(request: HttpRequest) -> bool:
    """Whether a form was sent to be looked at, and not to be saved."""
    return BUTTON in request.POST


def wrong_with(form: forms.Form) -> list[str]:
    """The errors of a form, each with the name of its field where that is not plain."""
    return [f"{_label(form, name)}{error}" for name, errors in form.errors.items() for error in errors]


def respond(request: HttpRequest, preview: Preview) -> HttpResponse:
    """What takes the place of a preview that is shown."""
    return TemplateResponse(request, "admin/console/preview_body.html", {"section": preview})


def _label(form: forms.Form, name: str) -> str:
    is_plain = name in (NON_FIELD_ERRORS, next(iter(form.fields)))
    return "" if is_plain else f"{form[name].label}: "
