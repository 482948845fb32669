"""A form whose values a service checks; its faults stand at the fields."""

from collections.abc import Callable
from typing import TypeVar

from django import forms
from django.core.exceptions import ValidationError

from runs.exceptions import RunError

T = TypeVar("T")


class ServiceForm(forms.Form):
    def carry_out(self, act: Callable[[], T]) -> T | None:
        """Call the service; None if it refused, with the reasons at the fields."""
        try:
            return act()
        except ValidationError as faults:
            for field, texts in faults.message_dict.items():
                self.add_error(field if field in self.fields else None, texts)
        except RunError as refusal:
            self.add_error(None, str(refusal))
        return None
