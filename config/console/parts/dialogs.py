"""Dialogs of buttons: a button that changes something opens a dialog and acts on its POST; a link alone changes nothing."""

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.exceptions import ObjectDoesNotExist
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.utils.text import capfirst
from unfold.forms import BaseDialogForm

from runs.exceptions import RunError


class Confirm(BaseDialogForm):  # type: ignore[misc]
    """A dialog without fields."""


def dialog(title: str, description: str, submit: str, form: type[BaseDialogForm] = Confirm) -> dict[str, Any]:
    return {"title": title, "description": description, "form_class": form, "form_submit_text": submit}


def attempt(request: HttpRequest, act: Callable[[], object], *, done: str = "", back: str) -> HttpResponse:
    """Call a service, show its refusal as a message, and go to a page. Without `done`, `act` returns the message."""
    try:
        told = act()
    except RunError as refusal:
        messages.error(request, str(refusal))
    except ObjectDoesNotExist:
        messages.error(request, "It is gone.")
    else:
        messages.success(request, done or str(told))
    return leave(request, back)


def submit(
    request: HttpRequest,
    shown: dict[str, Any],
    form: BaseDialogForm,
    act: Callable[[], str | None],
    *,
    field: str,
    done: str,
    back: str,
) -> HttpResponse:
    """Call a service with the dialog's values, then go to the page that `act` returns, or back. The dialog stays open and
    shows an invalid value at its field."""
    try:
        to = act()
    except ValueError as wrong:
        form.add_error(field, f"{capfirst(str(wrong))}.")
        context = {"dialog": shown, "form": form, "form_submit_text": shown["form_submit_text"]}
        return render(request, "unfold/helpers/dialog.html", context)
    except RunError as refusal:
        messages.error(request, str(refusal))
        return leave(request, back)
    except ObjectDoesNotExist:
        messages.error(request, "It is gone.")
        return leave(request, back)
    messages.success(request, done)
    return leave(request, to or back)


def leave(request: HttpRequest, url: str) -> HttpResponse:
    """Close the dialog and show a page."""
    if request.headers.get("HX-Request"):
        return HttpResponse(headers={"HX-Redirect": url})
    return HttpResponseRedirect(url)
