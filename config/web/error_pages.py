"""Error pages with DEBUG, and error reports by mail or log, without secrets."""

import re
from collections.abc import Callable
from typing import Any

from django.views.debug import ExceptionReporter, SafeExceptionReporterFilter

from agents.kernel.redaction import in_object, said, stored
from config.secrets import secrets_of_settings

SHORTEST = 6  # characters: a shorter text may occur anywhere in a report
# What a report quotes of the request itself: an answer must not show which of its texts are secrets.
OF_THE_REQUEST = {
    "request", "request_insecure_uri", "request_GET_items", "request_FILES_items", "request_COOKIES_items", "filtered_POST_items",
    "user_str",
}  # fmt: skip


class Filter(SafeExceptionReporterFilter):
    """A filter of error pages that also hides settings with URLs, which may contain passwords and keys."""

    hidden_settings = re.compile(
        SafeExceptionReporterFilter.hidden_settings.pattern + "|_URL|DSN|CREDENTIAL", re.IGNORECASE
    )


class Reporter(ExceptionReporter):
    """Removes secrets from whatever a report quotes of the process. Django only hides variables by name, but any local variable
    may hold one."""

    def get_traceback_data(self) -> dict[str, Any]:
        clean = _without_secrets()
        return {
            name: value if name in OF_THE_REQUEST else in_object(value, clean, keys=False)
            for name, value in super().get_traceback_data().items()
        }


def _without_secrets() -> Callable[[str], str]:
    """Besides those that are known to `stored`, shorter ones of settings. What the request contains stays: local variables repeat it."""
    answered = said.get()()
    found = {text for text in secrets_of_settings() if len(text) >= SHORTEST and text not in answered}
    # The longest first: a password is a part of its address.
    shapes = [shape for text in sorted(found, key=len, reverse=True) for shape in (text, repr(text)[1:-1])]

    def clean(text: str) -> str:
        for shape in shapes:
            text = text.replace(shape, SafeExceptionReporterFilter.cleansed_substitute)
        return stored(text)

    return clean
