"""`/api/schema/`: the OpenAPI document. Making it takes most of a second, so a process makes it once for each format."""

import hashlib
from functools import cache
from threading import Lock
from typing import Any

from django.http import HttpResponse, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control
from django.utils.encoding import force_bytes
from drf_spectacular.utils import extend_schema
from drf_spectacular.views import SpectacularAPIView
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request

MAX_AGE = 60  # seconds in which a deploy may go unseen; a client that has the document asks for a newer one by its ETag


class Description(SpectacularAPIView):
    """The document, as YAML or JSON. It is the same for everyone, so caches may keep it, and a token is not looked at."""

    authentication_classes: list[Any] = []  # a look would need the database

    @extend_schema(exclude=True)
    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponseBase:
        renderer: BaseRenderer = request.accepted_renderer
        with _one_at_a_time:
            text, etag = _document(renderer.format)
        answer = HttpResponse(text, content_type=request.accepted_media_type, headers={"ETag": etag})
        answer["Content-Disposition"] = f'inline; filename="Wakeful.{renderer.format}"'
        patch_cache_control(answer, public=True, max_age=MAX_AGE)
        found = get_conditional_response(request._request, etag=etag, response=answer)
        assert found is not None  # noqa: S101  (without a condition it is the answer)
        return found


@cache
def _document(format: str) -> tuple[bytes, str]:
    [renderer, *_] = [one for one in Description.renderer_classes if one.format == format]
    text = force_bytes(renderer().render(_described(), renderer.media_type, {}))
    return text, f'"{hashlib.sha256(text).hexdigest()[:32]}"'


def document() -> dict[str, Any]:
    """The document as it is described to readers."""
    with _one_at_a_time:
        return _described()


@cache
def _described() -> dict[str, Any]:
    described: dict[str, Any] = Description.generator_class().get_schema(request=None, public=True)  # type: ignore[no-untyped-call]
    return described


_one_at_a_time = Lock()
