"""A provider of OAuth 2 and an API behind it: a real server, over HTTP, which is as strict as the strictest and fails as it is bid to."""

import base64
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from tests.support.answering import answering

CLIENT_ID, CLIENT_SECRET = "wakeful-client", "client-secret-9f8e7d6c5b4a"
SCOPES = ("mail.read", "mail.send")


@dataclass
class Grant:
    """What a person has allowed: its tokens. A refresh token that was used already ends the grant, as with providers that rotate."""

    scope: str
    access: dict[str, float] = field(default_factory=dict)  # token → when it ends
    refresh: str = ""
    used: set[str] = field(default_factory=set)


class OAuthServer:
    def __init__(self) -> None:
        self.lasts = 3600.0  # seconds, of an access token
        self.says_it_lasts: float | None = None  # another time than it does: the clocks differ
        self.rotates = True
        self.gives_refresh = True
        self.status = 200  # of the token endpoint
        self.refuses = ""  # an error code for each request
        self.loses_answers = 0  # so many requests are carried out, and not answered
        self.pause = 0.0  # seconds before an answer
        self.forbids = False  # the API refuses every token
        self.gate: threading.Event | None = None  # the token endpoint acts when it is set
        self.held: threading.Event | None = None  # the token endpoint has acted, and answers when it is set
        self.revoke_gate: threading.Event | None = None  # the revocation endpoint answers when it is set
        self.revoke_status = 200
        self.revoke_error = ""  # a token that has ended is one, as at Google
        self.asked: list[dict[str, str]] = []  # requests to the token endpoint
        self.revoked: list[str] = []
        self.called: list[tuple[str, str, int]] = []  # method, path and status of requests to the API
        self.given: list[str] = []  # every token, code and verifier that it has seen or given
        self.codes: dict[str, dict[str, str]] = {}
        self.grants: list[Grant] = []
        self.redirect_uris: set[str] = set()
        self.lock = threading.Lock()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_address[1]}"

    @property
    def settings(self) -> dict[str, Any]:
        """Of a connection of the provider `generic`."""
        return {
            "authorize_url": f"{self.url}/authorize",
            "token_url": f"{self.url}/token",
            "revoke_url": f"{self.url}/revoke",
            "hosts": [self.host],
        }

    def allow(self, *, access: str = "", refresh: str = "", scope: str = " ".join(SCOPES)) -> Grant:
        """A grant, as if a person had consented long ago."""
        grant = Grant(scope=scope)
        if access:
            grant.access[access] = time.time() + self.lasts
        grant.refresh = refresh
        self.grants.append(grant)
        return grant

    def withdraw(self) -> None:
        """A person removes the access at the provider."""
        self.grants.clear()

    def revoke(self, token: str) -> None:
        """RFC 7009: the grant of the token ends; a token that is unknown, or was rotated, is no error."""
        self.revoked.append(token)
        self.grants = [grant for grant in self.grants if token != grant.refresh and token not in grant.access]

    # Its endpoints

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser is sent, once the person has clicked."""
        uri = query["redirect_uri"]
        assert query["response_type"] == "code" and query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        if query.get("answer") == "deny":
            return f"{uri}?{urlencode({'error': 'access_denied', 'state': query['state']})}"
        code = self._new("code")
        self.codes[code] = query
        return f"{uri}?{urlencode({'code': code, 'state': query['state']})}"

    def token(self, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        expected = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
        if authorization != f"Basic {expected}":
            return 401, {"error": "invalid_client"}
        if self.refuses:
            return 400, {"error": self.refuses, "error_description": f"look: {form.get('refresh_token', '')}"}
        if form["grant_type"] == "client_credentials":
            return 200, self._tokens(Grant(scope=form.get("scope", "")), refresh=False)
        if form["grant_type"] == "authorization_code":
            return self._exchanged(form)
        return self._refreshed(form["refresh_token"])

    def _exchanged(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        said = self.codes.pop(form["code"], None)
        self.given.append(form["code_verifier"])
        challenge = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).decode().rstrip("=")
        if said is None or form["redirect_uri"] != said["redirect_uri"] or challenge != said["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        return 200, self._tokens(Grant(scope=said["scope"]), refresh=self.gives_refresh)

    def _refreshed(self, token: str) -> tuple[int, dict[str, Any]]:
        for grant in self.grants:
            if token in grant.used:
                self.grants.remove(grant)
                return 400, {"error": "invalid_grant"}
            if grant.refresh and token == grant.refresh:
                if self.rotates:
                    grant.used.add(token)
                return 200, self._tokens(grant, refresh=self.rotates)
        return 400, {"error": "invalid_grant"}

    def _tokens(self, grant: Grant, *, refresh: bool) -> dict[str, Any]:
        if grant not in self.grants:
            self.grants.append(grant)
        access = self._new("access")
        grant.access[access] = time.time() + self.lasts
        told = self.lasts if self.says_it_lasts is None else self.says_it_lasts
        answer = {"access_token": access, "token_type": "Bearer", "expires_in": told, "scope": grant.scope}
        if refresh:
            grant.refresh = answer["refresh_token"] = self._new("refresh")
        return answer

    def call(self, method: str, path: str, authorization: str) -> int:
        token = authorization.removeprefix("Bearer ")
        good = any(grant.access.get(token, 0) > time.time() for grant in self.grants) and not self.forbids
        self.called.append((method, path, 200 if good else 401))
        return 200 if good else 401

    def _new(self, kind: str) -> str:
        made = f"{kind}-{secrets.token_urlsafe(24)}"
        self.given.append(made)
        return made

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                query = dict(parse_qsl(parts.query))
                if parts.path == "/authorize":
                    return self._consent(query)
                if parts.path == "/click":
                    return self._answer(302, b"", Location=provider.authorize(query))
                if parts.path == "/.well-known/openid-configuration":
                    names = {"authorization_endpoint": "authorize", "token_endpoint": "token"}
                    found = {"issuer": provider.url, **{name: f"{provider.url}/{at}" for name, at in names.items()}}
                    return self._json(200, {**found, "revocation_endpoint": f"{provider.url}/revoke"})
                self._api()

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.path == "/token":
                    self._token(dict(parse_qsl(body.decode())))
                elif self.path == "/revoke":
                    if provider.revoke_gate:
                        provider.revoke_gate.wait(60)
                    if provider.revoke_status != 200:
                        return self._answer(provider.revoke_status, b"<h1>gateway</h1>")
                    if provider.revoke_error and not provider.grants:
                        return self._json(400, {"error": provider.revoke_error})
                    with provider.lock:
                        provider.revoke(dict(parse_qsl(body.decode()))["token"])
                    self._json(200, {})
                else:
                    self._api()

            def _api(self) -> None:
                if self.path == "/elsewhere":
                    return self._answer(302, b"", Location="http://127.0.0.2:9/steal")
                status = provider.call(self.command, self.path, self.headers.get("Authorization", ""))
                self._json(status, {"mail": ["one", "two"]} if status == 200 else {"error": "expired"})

            def _token(self, form: dict[str, str]) -> None:
                with provider.lock:
                    provider.asked.append(form)
                time.sleep(provider.pause)
                if provider.gate:
                    provider.gate.wait(60)
                if provider.status != 200:
                    return self._answer(provider.status, b"<h1>gateway</h1>")
                with provider.lock:
                    status, answer = provider.token(form, self.headers.get("Authorization", ""))
                    is_lost, provider.loses_answers = provider.loses_answers > 0, max(provider.loses_answers - 1, 0)
                if is_lost:
                    self.connection.close()
                    return
                if provider.held:
                    provider.held.wait(60)
                self._json(status, answer)

            def _consent(self, query: dict[str, str]) -> None:
                more = urlencode(query, quote_via=quote)
                page = f"<h1>Allow Wakeful?</h1><p>{query['scope']}</p><a href='/click?{more}'>Allow</a>"
                self._answer(
                    200,
                    f"{page} <a href='/click?{more}&answer=deny'>Deny</a>".encode(),
                    **{"Content-Type": "text/html"},
                )

            def _json(self, status: int, content: Any) -> None:
                self._answer(status, json.dumps(content).encode(), **{"Content-Type": "application/json"})

            def _answer(self, status: int, body: bytes, **headers: str) -> None:
                try:
                    self.send_response(status)
                    for name, value in {**headers, "Content-Length": str(len(body))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    pass  # the caller has gone

            def log_message(self, *arguments: Any) -> None:
                pass

        return Handler


@contextmanager
def providing_tokens() -> Iterator[OAuthServer]:
    provider = OAuthServer()
    with answering(provider.server):
        yield provider
