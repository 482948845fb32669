"""HTML of stored texts. Every text enters a page through `shown`, here or by the filter of the same name, before it is escaped."""

from collections.abc import Iterable, Sequence
from typing import Any

from django import template
from django.utils import html
from django.utils.safestring import SafeString

from agents.kernel import redaction

register = template.Library()


@register.filter
def shown(value: Any) -> Any:
    """A text without secrets. HTML was made of such texts, and a value of another type has none."""
    return redaction.shown(value) if isinstance(value, str) and not isinstance(value, SafeString) else value


def format_html(pattern: str, *values: Any) -> SafeString:
    """Like Django's, for stored texts. Where values are attributes, such as addresses, take Django's."""
    return html.format_html(pattern, *map(shown, values))


def format_html_join(separator: str, pattern: str, rows: Iterable[Sequence[Any]]) -> SafeString:
    return html.format_html_join(separator, pattern, (tuple(map(shown, row)) for row in rows))
