"""A form field for JSON."""

from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.forms.fields import InvalidJSONInput
from unfold.widgets import UnfoldAdminTextareaWidget

from config.console.parts.sections import pretty
from runs.api.strict_json import Unreadable, parse_json, require_storable


class JsonField(forms.JSONField):
    """Shows JSON indented and parses it as strictly as the API; the error names the position. Empty means None."""

    def __init__(self, *, rows: int = 8, **options: Any) -> None:
        widget = UnfoldAdminTextareaWidget(attrs={"rows": rows, "spellcheck": "false", "data-json": ""})
        super().__init__(**{"required": False, "widget": widget, **options})
        self.empty_values = [None, ""]  # an empty object is a value

    def to_python(self, value: Any) -> Any:
        if not isinstance(value, str) or not value.strip():
            return None
        try:
            parsed = parse_json(value.encode())
            require_storable(parsed)
        except (Unreadable, UnicodeEncodeError) as error:
            raise ValidationError(f"This is {error}." if str(error).startswith("not ") else f"{error}") from None
        return parsed

    def bound_data(self, data: Any, initial: Any) -> Any:
        # Show the text as typed, so that the user can correct it.
        return None if data is None else InvalidJSONInput(data)

    def prepare_value(self, value: Any) -> Any:
        if value is None:
            return ""
        return value if isinstance(value, InvalidJSONInput) else pretty(value)
