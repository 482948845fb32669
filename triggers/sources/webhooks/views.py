"""/hooks/<source-slug>/: the HTTP of a source's door."""

import logging
from typing import Any

import structlog
from django.http import HttpRequest, HttpResponse, JsonResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema, inline_serializer
from rest_framework import serializers
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView
from uuid_utils.compat import uuid7

from runs.api.body import read_body
from runs.models.audit import CLIENT
from runs.network.site import site
from triggers.sources.http.answers import ANY_BODY, answer, status_of
from triggers.sources.http.headers import UNREADABLE, Headers
from triggers.sources.webhooks.door import Arrival, Taken, WrongMethod, greet, take
from triggers.sources.webhooks.refusals import note_refused, refusal_of
from triggers.sources.webhooks.scheme import Reply

log = structlog.get_logger(__name__)

RENDERER = JSONRenderer()
# Keys in the WSGI environment: the id of the request as an `Arrival`, and what `take` has raised already, for the view to answer.
ARRIVAL_ID, RAISED = "wakeful.arrival_id", "wakeful.raised"

TAKEN = inline_serializer("Taken", {"event": serializers.UUIDField(), "duplicate": serializers.BooleanField()})
EACH = {"type": "array", "items": {"$ref": "#/components/schemas/Taken"}}
REFUSED = inline_serializer(
    "RefusedDelivery",
    {"detail": serializers.CharField(required=False), "field": serializers.CharField(required=False)},
)
ANSWERS = {
    202: OpenApiResponse(
        {"oneOf": [EACH["items"], EACH]},
        "recorded; of a delivery of several events: what became of each, in their order",
    ),
    200: OpenApiResponse(
        TAKEN, "a duplicate, with the id of the first event; or the answer to a handshake of the sender"
    ),
    400: OpenApiResponse(REFUSED, "a body shorter than Content-Length, an unreadable header or a reserved type"),
    401: OpenApiResponse(description="the proof is missing, wrong or too old; no detail"),
    403: OpenApiResponse(REFUSED, "the address is not one of those that the source allows"),
    404: OpenApiResponse(REFUSED, "the source does not exist or is disabled"),
    408: OpenApiResponse(REFUSED, "the body did not arrive in time"),
    411: OpenApiResponse(REFUSED, "no Content-Length"),
    413: OpenApiResponse(REFUSED, "the body is too large"),
    503: OpenApiResponse(REFUSED, "overloaded, or over the limit of the source: try again after Retry-After"),
}


class HookView(APIView):
    """The scheme of the source does what DRF does elsewhere: it authenticates the sender and reads the body."""

    authentication_classes = ()
    permission_classes = ()
    throttle_classes = ()
    parser_classes = ()
    renderer_classes = (JSONRenderer,)
    http_method_names = ["post", "put", "get", "options"]

    @property
    def default_response_headers(self) -> dict[str, str]:
        return {}

    def initialize_request(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Request:
        """The DRF request without parsers and authenticators."""
        return Request(request)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Always JSON: an unusual Accept header must not cost an event. The source is not known yet, so there is nothing
        to authenticate."""
        request.accepted_renderer, request.accepted_media_type = RENDERER, RENDERER.media_type

    @extend_schema(
        operation_id="hooks_deliver",
        tags=["hooks"],
        auth=[],
        parameters=[OpenApiParameter("slug", OpenApiTypes.STR, OpenApiParameter.PATH, description="of the source")],
        request=ANY_BODY,
        responses=ANSWERS,
    )
    def post(self, request: Request, slug: str) -> HttpResponse:
        """Deliver a webhook. The kind of the source defines how a delivery is proved, and where its id and type are."""
        if error := request._request.META.get(RAISED):
            raise error
        return answered(take(slug, arrival_of(request._request, read_body(request._request))))

    @extend_schema(exclude=True)
    def put(self, request: Request, slug: str) -> HttpResponse:
        return self.post(request, slug)

    @extend_schema(exclude=True)
    def get(self, request: Request, slug: str) -> HttpResponse:
        return sent(greet(slug, arrival_of(request._request, b"")))

    def options(self, request: Request, slug: str) -> HttpResponse:  # type: ignore[override]
        return self.get(request, slug)

    def http_method_not_allowed(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Response:
        raise WrongMethod(request.method or "")

    def handle_exception(self, error: Exception) -> Response:
        refusal = refusal_of(error)
        if refusal is None:
            return super().handle_exception(error)
        slug, request = self.kwargs["slug"], self.request._request
        if refusal.log_as:
            level = logging.ERROR if refusal.is_our_fault else logging.INFO
            log.log(level, refusal.log_as, source=slug, reason=refusal.reason or str(error))
        if refusal.reason:
            user_agent = request.headers.get("User-Agent", "")
            note_refused(slug, reason=refusal.reason, status=refusal.status, user_agent=user_agent)
        return Response(refusal.data, refusal.status, headers=dict(refusal.headers), exception=True)


def arrival_of(request: HttpRequest, body: bytes) -> Arrival:
    return Arrival(
        method=request.method or "",
        url=site() + request.get_full_path(),
        headers=Headers(request.headers, request.META.get(UNREADABLE, ())),
        body=body,
        client=CLIENT.get(),
        id=request.META.get(ARRIVAL_ID) or uuid7(),
    )


def answered(taken: Taken) -> HttpResponse:
    if taken.reply:
        return sent(taken.reply)
    assert taken.events  # noqa: S101  (a handshake has a reply)
    answers = [answer(one) for one in taken.events]
    # Not a Response, whose rendering costs a delivery more than all else that DRF does for it.
    return JsonResponse(
        answers if len(answers) > 1 else answers[0], status=max(map(status_of, taken.events)), safe=False
    )


def sent(reply: Reply) -> HttpResponse:
    return HttpResponse(reply.body, status=reply.status, content_type=reply.content_type, headers=dict(reply.headers))
