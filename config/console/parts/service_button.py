"""A button of a detail page that asks in a dialog, and then calls one service."""

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from unfold.forms import BaseDialogForm

from config.console.parts.dialogs import attempt
from config.console.parts.links import listing, page
from config.console.parts.panel import Panel, acting, button

SUBMITTED = "_form_submitted"  # unfold's own field of each dialog


def service_button(
    description: str,
    permission: str,
    dialog: Mapping[str, Any],
    *,
    icon: str,
    done: str = "",
    url_path: str | None = None,
    variant: str = "default",
    to_list: bool = False,
) -> Callable[[Callable[..., str | None]], Any]:
    """Turn a method that calls a service into a button. The method gets the row's id, the acting account as `by` and the fields of
    the dialog's form by name. Without `done`, it returns the message.
    """

    def button_of(call: Callable[..., str | None]) -> Any:
        @button(description, permissions=[permission], icon=icon, url_path=url_path, variant=variant, dialog=dialog)
        @wraps(call)
        def view(panel: Panel, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
            back = listing(panel.noun) if to_list else page(panel.noun, object_id)
            values = {name: value for name, value in form.cleaned_data.items() if name != SUBMITTED}
            act = partial(call, panel, object_id, by=acting(request), **values)
            return attempt(request, act, done=done, back=back)

        return view

    return button_of
