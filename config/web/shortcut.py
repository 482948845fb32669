"""The shortcut of plain deliveries: from the event loop to the door of their source, without a WSGI environment, Django's middlewares
and DRF, which cost more than the door itself.

It answers only what the door has taken. A request with anything unusual, and each refusal, goes the way of all requests: the view alone
words, logs and counts refusals. The middlewares give the headers of an answer, once for each host.
"""

import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from uuid import UUID

from django.conf import settings
from django.core.exceptions import DisallowedHost
from django.core.handlers.base import BaseHandler
from django.core.handlers.wsgi import WSGIRequest
from django.core.signals import request_finished, request_started
from django.http import HttpRequest, HttpResponse
from django.utils.encoding import iri_to_uri
from granian.rsgi import Scope

from config.web.clients import client_of, from_client
from config.web.requests import fields_of, peer_of, unreadable_fields
from runs.network.site import site
from triggers.accept import Accepted
from triggers.sources.http.headers import Headers
from triggers.sources.webhooks.door import Arrival, Taken, take
from triggers.sources.webhooks.views import answered

Fields = Mapping[str, str]
Answer = tuple[int, list[tuple[str, str]], bytes]

NO_ID = UUID(int=0)
NO_ID_TEXT = str(NO_ID).encode()
HOOK = re.compile(r"/hooks/([-\w]+)/?", re.ASCII)
LENGTH = re.compile(r"[0-9]{1,12}", re.ASCII)
# Chunked bodies are refused; a cookie concerns middlewares.
UNUSUAL = frozenset({"transfer-encoding", "cookie"})
# What the answer of middlewares to a plain delivery may depend on.
ADDRESSED = ("host", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto")
# Middlewares that do nothing else to a plain delivery than to refuse it by these fields, or to put headers on its answer; with any other
# there is no shortcut. KnowTheClient does more, which `Shortcut` does as well.
KNOWN = frozenset(
    {
        "config.web.clients.KnowTheClient",
        "config.web.probes.AnswerProbes",
        "django.middleware.security.SecurityMiddleware",
        "django.middleware.gzip.GZipMiddleware",
        "config.web.static_files.KeepVersions",
        "whitenoise.middleware.WhiteNoiseMiddleware",
        "config.web.headers.SetPolicy",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "config.web.request_texts.KnowWhatIsSaid",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "config.web.sessions.EndIdleSessions",
        "config.web.prompt_agents.KnowPromptAgents",
        "config.web.plans.PlanWithValues",
        "django.contrib.messages.middleware.MessageMiddleware",
        "django.middleware.clickjacking.XFrameOptionsMiddleware",
        "config.web.logins.AnswerRefusals",
        "config.console.access.password_again.AskAgain",
        "config.console.parts.bad_values.AnswerMalformed",
    }
)


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A plain delivery, and the headers that the middlewares put on its answer."""

    slug: str
    arrival: Arrival
    headers: tuple[tuple[str, str], ...]


class Shortcut:
    """`is_open`: whether the database has all migrations, which is found out on the way of all requests."""

    def __init__(self, is_open: Callable[[], bool]) -> None:
        self._is_open = is_open
        fits = KNOWN.issuperset(settings.MIDDLEWARE) and not settings.DISALLOWED_USER_AGENTS
        self._middlewares = Middlewares() if fits and not settings.FORCE_SCRIPT_NAME else None

    def take(self, scope: Scope, body: bytes, id: UUID) -> Answer | None:
        """The answer to a plain delivery, whose body has the length that it gives. None: the request is another one. A refusal is an
        exception, as with the door. `id`: of its arrival."""
        plain = self.plain(scope, body, id)
        return None if plain is None else _take(plain)

    def plain(self, scope: Scope, body: bytes, id: UUID) -> Plain | None:
        """The plain delivery; None: the request is another one."""
        if scope.method != "POST" or not self._middlewares or not (hook := HOOK.fullmatch(scope.path)):
            return None
        fields = fields_of(scope)
        if not self._is_open() or UNUSUAL & fields.keys() or not LENGTH.fullmatch(fields.get("content-length", "")):
            return None
        headers = self._middlewares.headers(scope.scheme, *map(fields.get, ADDRESSED))
        if headers is None:
            return None
        query = scope.query_string
        arrival = Arrival(
            method="POST",
            url=f"{site()}{scope.path}{f'?{iri_to_uri(query)}' if query else ''}",
            headers=Headers(fields, unreadable_fields(scope)),
            body=body,
            client=client_of(peer_of(scope), fields.get("x-forwarded-for", "")),
            id=id,
        )
        return Plain(slug=hook[1], arrival=arrival, headers=headers)


def _take(plain: Plain) -> Answer:
    # Django and apps look after a thread's connections and caches by these signals.
    request_started.send(sender=Shortcut)
    try:
        with from_client(plain.arrival.client or ""):
            taken = take(plain.slug, plain.arrival)
    finally:
        request_finished.send(sender=Shortcut)
    return answer_to(taken, plain.headers)


def answer_to(taken: Taken, headers: tuple[tuple[str, str], ...]) -> Answer:
    """As the view gives it and the middlewares leave it."""
    if len(taken.events) != 1 or taken.reply is not None:
        return _answer_to(taken, headers)
    # All of them differ in the id alone, which has always the same length.
    [accepted] = taken.events
    status, given, content = _answer_to_any(replace(accepted, event_id=NO_ID), headers)
    return status, given, content.replace(NO_ID_TEXT, str(accepted.event_id).encode())


@lru_cache(maxsize=256)
def _answer_to_any(event: Accepted, headers: tuple[tuple[str, str], ...]) -> Answer:
    return _answer_to(Taken(events=(event,)), headers)


def _answer_to(taken: Taken, headers: tuple[tuple[str, str], ...]) -> Answer:
    response = answered(taken)
    content = response.content
    own = {name.lower() for name in response.headers}
    added = [(name, value or str(len(content))) for name, value in headers if name.lower() not in own]
    return response.status_code, [*response.items(), *added], content


class Passed(HttpResponse):
    """The answer to a request that all middlewares have let through."""


class Middlewares(BaseHandler):
    """The middlewares of the settings, around an empty answer."""

    def __init__(self) -> None:
        super().__init__()
        self.load_middleware()
        self.headers = lru_cache(maxsize=256)(self._headers)

    def _get_response(self, request: HttpRequest) -> HttpResponse:
        return Passed()

    def _headers(self, scheme: str, *addressed: str | None) -> tuple[tuple[str, str], ...] | None:
        """The headers that they put on the answer to a delivery with these fields; that of the length is empty. None: they answer it
        themselves, or set a cookie."""
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/hooks/source/",
            "SERVER_NAME": "",
            "SERVER_PORT": "",
            "wsgi.url_scheme": scheme,
            "wsgi.input": io.BytesIO(),
        }
        for name, value in zip(ADDRESSED, addressed, strict=True):
            if value is not None:
                environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
        request = WSGIRequest(environ)
        try:
            request.get_host()
        except DisallowedHost:
            return None  # which would be logged here, and again on the way of all requests
        response = self.get_response(request)
        if not isinstance(response, Passed) or response.cookies:
            return None
        found = [(name, value) for name, value in response.items() if name != "Content-Type"]
        return tuple((name, "" if name == "Content-Length" else value) for name, value in found)
