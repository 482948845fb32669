"""A form field for a local time, as a browser's datetime input sends it."""

from datetime import MAXYEAR, MINYEAR, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextInputWidget

from agents.kernel.instants import parse_instant

FORMAT = "%Y-%m-%dT%H:%M:%S"


class LocalTime(forms.CharField):
    """A naive datetime, an aware one if an offset was given, or None if the field is empty."""

    def __init__(self, **options: Any) -> None:
        widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local", "step": "1"})
        super().__init__(**{"widget": widget, **options})

    def clean(self, value: Any) -> datetime | None:
        text = super().clean(value)
        try:
            at = parse_instant(text) if text else None
        except ValueError:
            raise ValidationError("Enter a date and time, e.g. 2026-11-20T09:00.") from None
        if at and not MINYEAR < at.year < MAXYEAR:  # converted to another zone, the first and last year may overflow
            raise ValidationError("Enter a date with a year from 2 to 9998, e.g. 2026-11-20T09:00.")
        return at
