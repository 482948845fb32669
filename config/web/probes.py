"""Probes of a load balancer or of Kubernetes call a process by its address, which is no name of the site."""

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse

from config.health import probes

VIEWS: dict[str, Callable[[HttpRequest], HttpResponse]] = {"/health/live": probes.live, "/health/ready": probes.ready}


class AnswerProbes:
    """Middleware: /health/live and /health/ready answer for any Host. They make no link and set no cookie, and show strangers nothing
    but counts and kinds."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        view = VIEWS.get(request.path_info)
        return self.get_response(request) if view is None else view(request)
