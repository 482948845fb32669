"""A time on the wall clock of a zone, as a browser's own field gives it."""

from datetime import MAXYEAR, MINYEAR, datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from unfold.widgets import UnfoldAdminTextInputWidget

FORMAT = "%Y-%m-%dT%H:%M:%S"


class LocalTime(forms.CharField):
    """A naive datetime, or an aware one where an offset was given; None where nothing was."""

    def __init__(self, **options: Any) -> None:
        widget = UnfoldAdminTextInputWidget(attrs={"type": "datetime-local", "step": "1"})
        super().__init__(**{"widget": widget, **options})

    def clean(self, value: Any) -> datetime | None:
        text = super().clean(value)
        try:
            at = datetime.fromisoformat(text) if text else None
        except ValueError:
            raise ValidationError("Write such as 2026-11-20T09:00.") from None
        if at and not MINYEAR < at.year < MAXYEAR:  # in another zone it may be beyond the calendar
            raise ValidationError("Write a time of these centuries, such as 2026-11-20T09:00.")
        return at
