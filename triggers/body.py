"""The JSON body of a request, by the rules that webhooks are read by."""

from collections.abc import Mapping
from typing import Any, cast

from rest_framework.exceptions import ParseError, ValidationError
from rest_framework.request import Request
from rest_framework.serializers import Serializer

from triggers.sources.door import read_body
from triggers.sources.payload import Unreadable, parse_json, require_storable


class Body(Serializer[Any]):
    """A body in which a misspelt name is an error rather than a default; none at all is an empty one."""

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


def _json_of(request: Request) -> Any:
    # DRF's own parser would let through what PostgreSQL cannot store, and read a chunked body as none.
    if not request.META.get("CONTENT_LENGTH") and "HTTP_TRANSFER_ENCODING" not in request.META:
        return {}
    body = read_body(request._request)
    try:
        data = parse_json(body) if body else {}
        require_storable(data)
    except Unreadable as reason:
        raise ParseError(f"body: {reason}") from None
    return data
