"""A form field for a duration, as a text such as "1h30m"."""

from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.text import capfirst
from unfold.widgets import UnfoldAdminTextInputWidget

from agents.durations import parse_duration

UNITS = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))


class DurationField(forms.Field):
    """A timedelta, or None if the field is empty."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"widget": UnfoldAdminTextInputWidget, **options})

    def to_python(self, value: Any) -> timedelta | None:
        if value in self.empty_values:
            return None
        try:
            return parse_duration(value.strip() if isinstance(value, str) else value)
        except ValueError as error:
            raise ValidationError(capfirst(f"{error}.")) from None

    def prepare_value(self, value: Any) -> Any:
        return short(value) if isinstance(value, timedelta) else value


def short(length: timedelta) -> str:
    """As the field reads it: "1h30m"."""
    left, parts = int(length.total_seconds()), []
    for unit, seconds in UNITS:
        amount, left = divmod(left, seconds)
        parts += [f"{amount}{unit}"] if amount else []
    return "".join(parts) or "0s"
