"""A button that changes something opens a dialog first and acts on its POST: nothing happens by a link alone."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.forms import BaseDialogForm

from runs.exceptions import RunError


class Confirm(BaseDialogForm):  # type: ignore[misc]
    """Nothing to fill in."""


def dialog(title: str, description: str, submit: str, form: type[BaseDialogForm] = Confirm) -> dict[str, Any]:
    return {"title": title, "description": description, "form_class": form, "form_submit_text": submit}


def attempt(request: HttpRequest, act: Callable[[], object], *, done: str) -> None:
    """Call a service; a refusal becomes a sentence for the operator."""
    try:
        act()
    except RunError as refusal:
        messages.error(request, str(refusal))
    else:
        messages.success(request, done)


def leave(request: HttpRequest, url: str) -> HttpResponse:
    """Close the dialog and show a page."""
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)
