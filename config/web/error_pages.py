"""Error pages with DEBUG, and error reports by mail or log, without secrets."""

import re

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.debug import ExceptionReporter, SafeExceptionReporterFilter

from config.secrets import secrets_of_settings

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
    found = {text for text in secrets_of_settings() if len(text) >= SHORTEST}
    # The longest first: a password is a part of its address.
    for text in sorted(found, key=len, reverse=True):
        for shape in (text, str(escape(text)), repr(text)[1:-1], str(escape(repr(text)[1:-1]))):
            report = report.replace(shape, SafeExceptionReporterFilter.cleansed_substitute)
    return mark_safe(report)  # noqa: S308 (it was made by a template)
