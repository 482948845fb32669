"""A form field for CEL: an error names its line and column, and marks the place."""

from collections.abc import Callable
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminExpandableTextareaWidget

from triggers.matching.expressions.cel import ExpressionError, check_condition, check_expression
from triggers.matching.expressions.faults import Fault


class ExpressionField(forms.CharField):
    """The CEL expression of a filter or a key, checked when it is saved."""

    def __init__(self, **options: Any) -> None:
        widget = UnfoldAdminExpandableTextareaWidget(attrs={"spellcheck": "false", "autocomplete": "off"})
        super().__init__(**{"widget": widget, **options})

    def clean(self, value: Any) -> str:
        text: str = super().clean(value)
        if text:
            check(text, by=check_condition)
        return text


def check(text: str, label: str = "", by: Callable[[str], None] = check_expression) -> None:
    """Raises ValidationError, with the place of the fault."""
    try:
        by(text)
    except ExpressionError as error:
        said = f"{label}{error}"
        raise ValidationError(format_html("{}{}", said, marked(error.fault)) if error.fault else said) from None


def marked(fault: Fault) -> SafeString:
    """The line of the fault, with its place marked."""
    text = fault.text
    begin, end = text.rfind("\n", 0, fault.at) + 1, text.find("\n", fault.at)
    after = text[fault.at + fault.length : end if end >= 0 else len(text)]
    return format_html(
        '<code class="fault">{}<mark>{}</mark>{}</code>', text[begin : fault.at], fault.marked or "…", after
    )
