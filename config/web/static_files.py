"""Static files: each address names the content, so that a browser keeps a file until it changes. Nothing is collected before a start."""

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.staticfiles import finders
from django.contrib.staticfiles.storage import StaticFilesStorage
from django.http import HttpRequest, HttpResponse

VERSION = "v"
FOR_A_YEAR = "max-age=31536000, public, immutable"


class VersionedStorage(StaticFilesStorage):
    """Addresses such as /static/console/console.css?v=3f0c9a1b."""

    def url(self, name: str | None) -> str:
        address = super().url(name)
        version = _version(name) if name else ""
        return f"{address}?{VERSION}={version}" if version else address


class KeepVersions:
    """Lets a browser keep a file that whitenoise serves at an address with its version."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response
        self._prefix = urlsplit(settings.STATIC_URL).path

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        is_file = response.status_code < 400 and request.path.startswith(self._prefix) and VERSION in request.GET
        if is_file and request.GET[VERSION] == _version(request.path.removeprefix(self._prefix)):
            response["Cache-Control"] = FOR_A_YEAR
        return response


@cache
def _version(name: str) -> str:
    """The beginning of the hash of a file's content; "" of a file that no finder finds."""
    path: Any = finders.find(name)
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:8] if path else ""
