"""Let the pages and the API know the prompt agents of this moment."""

from collections.abc import Callable
from contextlib import suppress

from django.http import HttpRequest, HttpResponse

from agents.prompt_agents import catalog
from runs.db.outage import CONNECTION_ERRORS

PLACES = ("/admin/", "/api/")  # senders of webhooks do not wait for it


class KnowPromptAgents:
    """Middleware that reads prompt agents at most once a second. While the database is away, the view reports it."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        if request.path_info.startswith(PLACES):
            with suppress(*CONNECTION_ERRORS):
                catalog.refresh()
        return self.get_response(request)
