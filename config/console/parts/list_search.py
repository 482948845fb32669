"""Fields of the forms above lists: instants and fields of data, and the range of time that two of them give."""

from argparse import ArgumentTypeError
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from django import forms
from django.core.exceptions import ValidationError
from django.http import HttpRequest
from unfold.widgets import UnfoldAdminTextInputWidget

from config.console.parts.browser_zone import zone_shown
from runs.management.arguments import since
from triggers.events.search import FieldIs
from triggers.exceptions import RuleError

A_TIME = "A time in {zone}, or a duration ago"
DATA = "data."  # a word of a search box that begins with it and has a "=" is a field of the data


class InstantOrAge(forms.CharField):
    """An instant, by the clock of the zone unless it has an offset, or a duration ago."""

    zone = ZoneInfo("UTC")

    def clean(self, value: Any) -> datetime | None:
        text = super().clean(value).strip()
        try:
            return since(text, self.zone) if text else None
        except ArgumentTypeError as error:
            raise ValidationError(f"{error}.") from None


class DataField(forms.CharField):
    """`path=value`."""

    def clean(self, value: Any) -> FieldIs | None:
        text = super().clean(value).strip()
        try:
            return FieldIs.parse(text.removeprefix(DATA)) if text else None
        except RuleError as error:
            raise ValidationError(f"{error}.") from None


class ListSearch(forms.Form):
    """A form above a list: conditions, of the query of a request; all of them apply."""

    def __init__(self, request: HttpRequest) -> None:
        super().__init__({name: request.GET.get(name, "") for name in self.base_fields})
        show_zone(self, request)


def show_zone(form: forms.Form, request: HttpRequest) -> None:
    """Read the times of the form by the clock that the console shows, which their help names."""
    zone = zone_shown(request)
    for field in form.fields.values():
        if isinstance(field, InstantOrAge):
            field.zone, field.help_text = zone, str(field.help_text).format(zone=zone.key)
            field.widget.attrs["title"] = field.help_text


def text_options(help_text: str, example: str) -> dict[str, Any]:
    widget = UnfoldAdminTextInputWidget(attrs={"placeholder": example, "title": help_text})
    return {"required": False, "max_length": 1024, "help_text": help_text, "widget": widget}


def field_in(term: str) -> FieldIs | None:
    """The field of data that a word of a search box means, such as `data.order_id=A-312`; None: it means none."""
    if not term.startswith(DATA) or "=" not in term:
        return None
    try:
        return FieldIs.parse(term.removeprefix(DATA))
    except RuleError:
        return None


def own_parameters(form: type[forms.Form], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of a list that are not of the form above it."""
    return {name: value for name, value in parameters.items() if name not in form.base_fields}
