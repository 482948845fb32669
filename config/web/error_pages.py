"""Error pages with DEBUG, and error reports by mail or log, without secrets."""

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.debug import ExceptionReporter, SafeExceptionReporterFilter

SHORTEST = 6  # characters: a shorter text may occur anywhere in a report


class Filter(SafeExceptionReporterFilter):
    """Also hides settings with URLs, which may contain passwords and keys."""

    hidden_settings = re.compile(
        SafeExceptionReporterFilter.hidden_settings.pattern + "|_URL|DSN|CREDENTIAL", re.IGNORECASE
    )


class Reporter(ExceptionReporter):
    """Removes the value of every secret setting from the whole report. Django only hides variables by name, but any local
    variable may hold a secret."""

    def get_traceback_html(self) -> SafeString:
        return _without_secrets(super().get_traceback_html())

    def get_traceback_text(self) -> SafeString:
        return _without_secrets(super().get_traceback_text())


def _without_secrets(report: str) -> SafeString:
    found = {text for knob in settings.KNOBS if knob.secret for text in _texts(knob.value) if len(text) >= SHORTEST}
    # The longest first: a password is a part of its address.
    for text in sorted(found, key=len, reverse=True):
        for shape in (text, str(escape(text)), repr(text)[1:-1], str(escape(repr(text)[1:-1]))):
            report = report.replace(shape, SafeExceptionReporterFilter.cleansed_substitute)
    return mark_safe(report)  # noqa: S308 (it was made by a template)


def _texts(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
            yield from _passwords(value)
        case dict():
            yield str(value.get("PASSWORD") or "")
        case list():
            for item in value:
                yield from _texts(item)


def _passwords(url: str) -> Iterable[str]:
    try:
        return [urlsplit(url).password or ""]
    except ValueError:
        return []
