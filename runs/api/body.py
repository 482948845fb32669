"""The body of a request: check the length first, read the bytes once, parse JSON by the same strict rules as webhooks.

No answer to a wrong body is much longer than the body: faults are named up to FAULTS at each place.
"""

from collections.abc import Mapping
from itertools import islice
from typing import Any, ClassVar, cast

from django.conf import settings
from django.http import HttpRequest
from django.http.request import UnreadablePostError
from rest_framework.exceptions import APIException, ParseError, ValidationError
from rest_framework.request import Request
from rest_framework.serializers import JSONField, Serializer

from runs.api.strict_json import Unreadable, parse_json, require_storable

MOST = 2**20  # bytes of a body without data of the caller's own
ELEMENTS = 1_000  # of a list or an object in a body, outside of such data: each one is checked by itself
FAULTS = 10
LONGEST_NAME = 100  # characters of an unknown field that are quoted


class LengthRequired(APIException):
    status_code = 411
    default_detail = "Send a Content-Length."


class TooLarge(APIException):
    status_code = 413
    default_detail = "The body is too large."


class Body(Serializer[Any]):
    """A JSON body that refuses unknown fields; no body at all counts as an empty one. A body with a JSONField, such as
    the data of an event, may have WAKEFUL_MAX_BODY bytes, others MOST, unless `is_large` is set.
    """

    is_large: ClassVar[bool | None] = None

    @classmethod
    def read(cls, request: Request) -> dict[str, Any]:
        body = cls(data={})
        is_large = cls.is_large
        if is_large is None:
            is_large = any(isinstance(field, JSONField) for field in body.fields.values())
        body.initial_data = _json_of(request, settings.WAKEFUL_MAX_BODY if is_large else MOST)
        if not body.is_valid():
            raise ValidationError(_first(body.errors))
        return cast(dict[str, Any], body.validated_data)

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping):
            _refuse_unknown(data, self.fields)
            for name, field in self.fields.items():
                if not isinstance(field, JSONField) and _is_long(data.get(name)):
                    raise ValidationError({name: [f"A list or an object of it has more than {ELEMENTS:,} elements."]})
        return super().to_internal_value(data)


def _refuse_unknown(data: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    unknown = [name for name in data if name not in fields]
    if not unknown:
        return
    known = f"Unknown field. Known here: {', '.join(fields)}."
    faults = {name[:LONGEST_NAME]: [known] for name in sorted(unknown[:FAULTS])}
    if len(unknown) > FAULTS:
        faults["…"] = [f"{len(unknown) - FAULTS:,} more are unknown."]
    raise ValidationError(faults)


def _is_long(value: Any) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    return len(value) > ELEMENTS or any(map(_is_long, value.values() if isinstance(value, dict) else value))


def _first(faults: Any) -> Any:
    """The first ones at each place."""
    if isinstance(faults, Mapping):
        return {name: _first(inner) for name, inner in islice(faults.items(), FAULTS + 1)}
    if not isinstance(faults, list):
        return faults
    found: list[Any] = []
    for inner in faults:  # of a list of objects: each has its place, also where nothing is wrong with it
        found.append(_first(inner))
        if sum(map(bool, found)) == FAULTS:
            break
    return found


def read_body(request: HttpRequest, most: int | None = None) -> bytes:
    """The bytes of the body, after a check of its length: `most`, or WAKEFUL_MAX_BODY."""
    most = settings.WAKEFUL_MAX_BODY if most is None else min(most, settings.WAKEFUL_MAX_BODY)
    length = request.META.get("CONTENT_LENGTH") or ""
    # Under WSGI a chunked body looks empty, so 411 is the only safe answer (RFC 9110 §15.5.12).
    if "HTTP_TRANSFER_ENCODING" in request.META or not (length.isascii() and length.isdigit()):
        raise LengthRequired
    if len(length) > 12 or int(length) > most:
        raise TooLarge
    try:
        body = request.body
    except UnreadablePostError:
        raise ParseError("The body is incomplete.") from None
    if len(body) != int(length):
        raise ParseError("The body's length is not that of Content-Length.")
    return body


def _json_of(request: Request, most: int) -> Any:
    # DRF's own parser accepts values that PostgreSQL cannot store, and reads a chunked body as empty.
    if not request.META.get("CONTENT_LENGTH") and "HTTP_TRANSFER_ENCODING" not in request.META:
        return {}
    body = read_body(request._request, most)
    try:
        data = parse_json(body) if body else {}
        require_storable(data)
    except Unreadable as reason:
        raise ParseError(f"body: {reason}") from None
    return data
