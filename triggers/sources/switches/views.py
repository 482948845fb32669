"""/ping/<source-slug>/<token>: the HTTP of a dead man's switch."""

import re
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.request import UnreadablePostError
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response

from triggers.sources.http.answers import ANY_BODY
from triggers.sources.switches import ping
from triggers.sources.switches.ping import KEPT
from triggers.sources.webhooks.door import take
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.views import HookView, arrival_of, sent

ADDRESS = rf"^{ping.ADDRESS.pattern.removeprefix('/')}$"
ANSWERS = {
    (200, "text/plain"): OpenApiResponse(OpenApiTypes.STR, "recorded"),
    404: OpenApiResponse(
        description="the source does not exist, is disabled, or takes no pings; or the token is wrong"
    ),
    429: OpenApiResponse(
        description="too many pings in a minute, or too many events wait for dispatch: try again after Retry-After"
    ),
    503: OpenApiResponse(description="the database is away: try again after Retry-After"),
}
SLUG = OpenApiParameter("slug", OpenApiTypes.STR, OpenApiParameter.PATH, description="of the source")
TOKEN = OpenApiParameter("token", OpenApiTypes.STR, OpenApiParameter.PATH, description="of the switch")
PURPOSES = ("Sec-Purpose", "Purpose", "X-Purpose", "X-Moz")
EXPANDERS = re.compile(
    r"slackbot|slack-img|discordbot|telegrambot|whatsapp|twitterbot|facebookexternalhit|linkedinbot|skypeuripreview|microsoft teams"
    r"|mattermost|rocket\.chat|zulip|synapse|embedly|iframely|googlebot|bingbot|applebot|mastodon|outlook-?preview",
    re.IGNORECASE,
)


class PingView(HookView):
    """Receives pings. The address identifies the switch; any method and body is accepted."""

    http_method_names = ["get", "head", "post", "put"]

    @extend_schema(
        operation_id="hooks_ping",
        tags=["hooks"],
        auth=[],
        parameters=[SLUG, TOKEN],
        request=ANY_BODY,
        responses=ANSWERS,
    )
    def post(self, request: Request, slug: str, **address: Any) -> HttpResponse:
        """Ping a dead man's switch: the job has worked. Append /start, /fail or /<exit code> to the address to report a
        start or a failure.
        """
        if looks_ahead(request.headers):
            return HttpResponse(status=503, headers={"Cache-Control": "no-store"})
        taken = take(slug, arrival_of(request._request, beginning_of(request._request)), kind=ping.Ping.name)
        assert taken.reply  # noqa: S101  (the kind has one)
        return sent(taken.reply)

    @extend_schema(
        operation_id="hooks_ping_get",
        tags=["hooks"],
        auth=[],
        parameters=[SLUG, TOKEN],
        request=None,
        responses=ANSWERS,
    )
    def get(self, request: Request, slug: str, **address: Any) -> HttpResponse:
        """The same without a body, for clients that only GET. One of a browser or a chat that fetches ahead is 503, and no ping."""
        return self.post(request, slug)

    @extend_schema(exclude=True)
    def head(self, request: Request, slug: str, **address: Any) -> HttpResponse:
        return self.post(request, slug)

    @extend_schema(exclude=True)
    def put(self, request: Request, slug: str, **address: Any) -> HttpResponse:
        return self.post(request, slug)

    def handle_exception(self, error: Exception) -> Response:
        """A wrong token is answered like an unknown slug, and counted as what it is."""
        answer = super().handle_exception(error)
        return Response({"detail": NotFound().detail}, 404, exception=True) if isinstance(error, Rejected) else answer


def looks_ahead(headers: Mapping[str, str]) -> bool:
    """Whether the request is a prefetch of a browser or a link preview of a chat, which must not count as a ping."""
    purposes = " ".join(headers.get(name, "") for name in PURPOSES).lower()
    is_ahead = any(word in purposes for word in ("prefetch", "prerender", "preview"))
    return is_ahead or EXPANDERS.search(headers.get("User-Agent", "")) is not None


def beginning_of(request: HttpRequest) -> bytes:
    """The beginning of the body, at most KEPT bytes; empty if its length is unknown or absurd."""
    length = request.META.get("CONTENT_LENGTH") or ""
    if not (length.isascii() and length.isdigit()) or len(length) > 12 or int(length) > settings.WAKEFUL_MAX_BODY:
        return b""
    try:
        return request.body[:KEPT]
    except UnreadablePostError:
        return b""
