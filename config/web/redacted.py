"""Keeps secrets out of pages and API answers, also those that a delivery brought or a person typed."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from agents.redaction import redacted

TEXTS = ("text/html", "application/json")


class RedactAnswers:
    """Middleware; a page that shows a new secret once says so by `shows_secret`."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        is_text = response.get("Content-Type", "").startswith(TEXTS)
        if is_text and not response.streaming and not getattr(response, "shows_secret", False):
            text = response.content.decode(response.charset)
            if (clean := redacted(text)) != text:
                response.content = clean
        return response
