"""A form field for a duration, as a text such as "1h30m"."""

from datetime import timedelta
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.text import capfirst
from unfold.widgets import UnfoldAdminTextInputWidget

from agents.kernel.durations import parse_duration

UNITS = (("d", timedelta(days=1)), ("h", timedelta(hours=1)), ("m", timedelta(minutes=1)))


class DurationField(forms.Field):
    """A timedelta, or None if the field is empty."""

    widget = UnfoldAdminTextInputWidget

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
    """A duration in the form that the field reads: "1h30m"."""
    left, parts = length, []
    for unit, size in UNITS:
        amount, left = divmod(left, size)
        parts += [f"{amount}{unit}"] if amount else []
    parts += [f"{left.total_seconds():.6f}".rstrip("0").rstrip(".") + "s"] if left else []
    return "".join(parts) or "0s"
