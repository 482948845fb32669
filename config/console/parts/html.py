"""HTML of stored texts. Every text enters a page through `shown`, here or by the filter of the same name, before it is escaped."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from django import template
from django.utils import html
from django.utils.safestring import SafeString, mark_safe

from agents.kernel import redaction

register = template.Library()
CODE = re.compile(r"(`{1,2})([^`\n]+)\1")
EMPHASIS = re.compile(r"(?<![\w*])\*(\w(?:[^*]*\S)?)\*(?!\w)")  # not the asterisk of *.example.com


@register.filter
def shown(value: Any) -> Any:
    """A text without secrets. HTML was made of such texts, and a value of another type has none."""
    return redaction.shown(value) if isinstance(value, str) and not isinstance(value, SafeString) else value


def unbroken(text: str) -> str:
    """A short text, such as a duration, that a narrow column must not break."""
    return text.replace(" ", "\N{NO-BREAK SPACE}")


def shortened(text: str, most: int) -> str:
    """The beginning of a stored text, without secrets: of a secret that was cut before, a part would be shown."""
    clean = str(shown(text))
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


@register.filter
def emphasised(value: Any) -> Any:
    """A text in which asterisks stand around names, such as that of a button, which are emphasised instead."""
    if not isinstance(value, str) or isinstance(value, SafeString):
        return value
    return mark_safe(EMPHASIS.sub(r"<em>\1</em>", html.escape(shown(value))))  # noqa: S308  (escaped)


@register.filter
def coded(value: Any) -> Any:
    """A text of an author in which backticks stand around names, such as those of events, which are set as code instead."""
    if not isinstance(value, str) or isinstance(value, SafeString):
        return value
    return mark_safe(CODE.sub(r"<code>\2</code>", html.escape(shown(value))))  # noqa: S308  (escaped)


def format_html(pattern: str, *values: Any) -> SafeString:
    """Like Django's, for stored texts. Where values are attributes, such as addresses, take Django's."""
    return html.format_html(pattern, *map(shown, values))


def format_html_join(separator: str, pattern: str, rows: Iterable[Sequence[Any]]) -> SafeString:
    return html.format_html_join(separator, pattern, (tuple(map(shown, row)) for row in rows))
