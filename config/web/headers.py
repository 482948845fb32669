"""Sets the Content-Security-Policy of responses that have none."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

# unfold's pages have no inline scripts, but Alpine evaluates the expressions in their attributes, and colours and widths
# stand in style attributes. Scripts of other origins, plugins, frames and forms that lead elsewhere are refused.
POLICY = "; ".join(
    [
        "default-src 'self'",
        "script-src 'self' 'unsafe-eval'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    ]
)


class SetPolicy:
    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", POLICY)
        return response
