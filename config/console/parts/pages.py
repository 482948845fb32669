"""Pages besides lists and details: a form that calls a service, and a secret that is shown once."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse

from config.console.parts.panel import Panel
from config.console.parts.sections import Section


@dataclass(frozen=True, kw_only=True)
class Group:
    """A group of fields, with sections below them; with `when`, it is shown only while the form's `choice` field has one of these
    values; `only` says the same of single fields, by name. A folded group shows its title only, unless a field has an error; `said`
    then lists its values."""

    title: str = ""
    note: str = ""
    fields: Sequence[BoundField] = ()
    when: Sequence[str] = ()
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folded: bool = False
    said: str = ""
    sections: Sequence[Section] = ()

    @property
    def condition(self) -> str:
        return _condition(self.when)

    @property
    def conditional(self) -> list[tuple[BoundField, str]]:
        """Each field, and when it is shown; empty: always."""
        return [(one, _condition(self.only[one.name]) if one.name in self.only else "") for one in self.fields]

    @property
    def is_wrong(self) -> bool:
        return any(field.errors for field in self.fields)


def _condition(values: Sequence[str]) -> str:
    return f"{json.dumps(list(values))}.includes(choice)"


def form_page(
    panel: Panel,
    request: HttpRequest,
    form: forms.Form,
    *,
    title: str,
    submit: str,
    back: str,
    groups: Sequence[Group] = (),
    choice: str = "",
    sections: Sequence[Section] = (),
    obj: Any = None,
    method: str = "post",
) -> HttpResponse:
    """A form on its own page, with sections below it; a form that changes nothing uses `get`."""
    return render(
        panel, request, "admin/console/form.html", title=title, original=obj, form=form,
        groups=groups or [Group(fields=list(form.visible_fields()))], choice=form[choice] if choice else None,
        submit_text=submit, back=back, sections=sections, media=panel.media + form.media, method=method,
    )  # fmt: skip


def plain_page(
    panel: Panel, request: HttpRequest, *, title: str, sections: Sequence[Section], obj: Any = None
) -> HttpResponse:
    """Sections below a title."""
    return render(panel, request, "admin/console/plain.html", title=title, original=obj, sections=sections)


def reveal(panel: Panel, request: HttpRequest, *, title: str, secret: str, explained: str, back: str) -> HttpResponse:
    """Show a secret in the response only: it is stored nowhere in the clear, neither in a session nor in a cookie."""
    shown = {"secret": secret, "explained": explained, "back": back}
    return render(panel, request, "admin/console/secret.html", title=title, **shown)


def reveal_in_dialog(request: HttpRequest, *, secret: str, explained: str, back: str) -> HttpResponse:
    """Show a secret in place of the dialog. If its button stayed, a second click would make another secret."""
    context = {"secret": secret, "explained": explained, "back": back}
    response = TemplateResponse(request, "admin/console/secret_dialog.html", context)
    response["HX-Retarget"] = response["HX-Reselect"] = "#dialog"
    return response


def render(panel: Panel, request: HttpRequest, template: str, **context: Any) -> HttpResponse:
    """A page of a panel, with the frame of the console around it."""
    request.current_app = panel.admin_site.name
    context = {**panel.admin_site.each_context(request), "opts": panel.opts, **context}
    return TemplateResponse(request, template, context)
