"""What `bench.door` runs: deliveries through all of Django, by turns to the door and to a plain view."""

import io
import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any
from uuid import uuid4

import django
from django.conf import settings
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, JsonResponse
from django.urls import include, path
from django.views.decorators.csrf import csrf_exempt

from bench.probes.accepts import KILOBYTE, SECRET, signed_request

SLUG = "bench"


@csrf_exempt
def plain(request: HttpRequest, slug: str) -> JsonResponse:
    """The door as it was before it was DRF's."""
    from runs.api.body import read_body
    from triggers.sources.http.answers import answer, status_of
    from triggers.sources.webhooks.door import take
    from triggers.sources.webhooks.views import arrival_of

    event = take(slug, arrival_of(request, read_body(request))).event
    assert event
    return JsonResponse(answer(event), status=status_of(event))


def urlpatterns() -> list[Any]:
    return [path("plain/<slug:slug>/", plain), path("", include("config.urls"))]


class Urls:
    """A URLconf that is made when the settings are read."""

    urlpatterns: list[Any] = []


def environ_of(path: str) -> dict[str, Any]:
    head, _, body = signed_request(80, uuid4().hex, int(time.time())).partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    environ: dict[str, Any] = {
        "REQUEST_METHOD": "POST",
        "PATH_INFO": path,
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "REMOTE_ADDR": "127.0.0.1",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(body),
        "CONTENT_TYPE": fields.pop("Content-Type"),
        "CONTENT_LENGTH": str(len(KILOBYTE)),
    }
    return environ | {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in fields.items()}


def deliver(handler: Callable[..., Any], path: str) -> tuple[float, float]:
    environ = environ_of(path)
    statuses: list[str] = []
    wall, cpu = time.perf_counter(), time.thread_time()
    response = handler(environ, lambda status, headers, exc_info=None: statuses.append(status))
    content = b"".join(response)
    took = time.perf_counter() - wall, time.thread_time() - cpu
    response.close()
    if not statuses[0].startswith("202"):
        raise RuntimeError(f"refused: {statuses[0]} {content[:500]!r}")
    return took


def main(warm_up: int, count: int) -> None:
    from triggers.sources.edit import create_source
    from triggers.sources.secrets import add_secret

    Urls.urlpatterns = urlpatterns()
    settings.ROOT_URLCONF = Urls
    source = create_source(SLUG, kind="standard_webhooks", settings={}, by="cli:bench")
    add_secret(source, SECRET, by="cli:bench")
    handler = WSGIHandler()
    taken: dict[str, list[tuple[float, float]]] = {"plain": [], "drf": []}
    addresses = [("plain", f"/plain/{SLUG}/"), ("drf", f"/hooks/{SLUG}/")]
    for number in range(warm_up + count):
        # Now one, now the other goes first.
        for name, address in addresses if number % 2 else reversed(addresses):
            took = deliver(handler, address)
            if number >= warm_up:
                taken[name].append(took)
    print(
        json.dumps(
            {
                name: {"wall": median(wall for wall, _ in times) * 1e6, "cpu": median(cpu for _, cpu in times) * 1e6}
                for name, times in taken.items()
            }
        )
    )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    django.setup()
    main(*map(int, sys.argv[1:]))
