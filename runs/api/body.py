"""The body of a request: check the length first, read the bytes once, parse JSON by the same strict rules as webhooks."""

from collections.abc import Mapping
from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from django.http.request import UnreadablePostError
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from runs.api.strict_json import Unreadable, parse_json, require_storable


class LengthRequired(APIException):
    status_code = 411
    default_detail = "Send a Content-Length."


class TooLarge(APIException):
    status_code = 413
    default_detail = "The body is too large."


class Body(Serializer[Any]):
    """A JSON body that refuses unknown fields; no body at all counts as an empty one."""

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        body = cls(data=_json_of(request))
        body.is_valid(raise_exception=True)
        return cast(dict[str, Any], body.validated_data)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping) and (unknown := sorted(set(data) - set(self.fields))):
            known = ", ".join(self.fields)
            raise ValidationError({name: [f"Unknown field. Known here: {known}."] for name in unknown})
        return super().to_internal_value(data)


def read_body(request: HttpRequest) -> bytes:
    """The bytes of the body, after a check of its length."""
    length = request.META.get("CONTENT_LENGTH") or ""
    # Under WSGI a chunked body looks empty, so 411 is the only safe answer (RFC 9110 §15.5.12).
    if "HTTP_TRANSFER_ENCODING" in request.META or not (length.isascii() and length.isdigit()):
        raise LengthRequired
    if len(length) > 12 or int(length) > settings.WAKEFUL_MAX_BODY:
        raise TooLarge
    try:
        body = request.body
    except UnreadablePostError:
        raise ParseError("The body is incomplete.") from None
    if len(body) != int(length):
        raise ParseError("The body is not as long as Content-Length says.")
    return body


def _json_of(request: Request) -> Any:
    # DRF's own parser accepts values that PostgreSQL cannot store, and reads a chunked body as empty.
    if not request.META.get("CONTENT_LENGTH") and "HTTP_TRANSFER_ENCODING" not in request.META:
        return {}
    body = read_body(request._request)
    try:
        data = parse_json(body) if body else {}
        require_storable(data)
    except Unreadable as reason:
        raise ParseError(f"body: {reason}") from None
    return data
