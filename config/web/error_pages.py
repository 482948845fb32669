"""Error pages and reports without secrets: what DEBUG shows, and what is mailed or logged where that is set up."""

import re

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe
from django.views.debug import ExceptionReporter, SafeExceptionReporterFilter

from config.secrets import secrets_of_settings

SHORTEST = 6  # characters: a shorter secret is no secret, and its letters are everywhere


class Filter(SafeExceptionReporterFilter):
    """Addresses hold passwords and keys, too."""

    hidden_settings = re.compile(
        SafeExceptionReporterFilter.hidden_settings.pattern + "|_URL|DSN|CREDENTIAL", re.IGNORECASE
    )


class Reporter(ExceptionReporter):
    """Every secret of the settings is blotted out of the whole report, wherever it stands: Django hides by name, and local
    variables of any frame may hold one under any name."""

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
