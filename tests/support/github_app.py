"""GitHub's answers to an app that asks for the token of an installation, and to that token. It verifies the app's proof."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from runs.connections.catalog import providers
from runs.connections.provider import Provider
from tests.support.answering import answering
from tests.support.rsa_keys import OURS, rsa_key

APP, INSTALLATION = "4711", "815"
GIVEN = {"metadata": "read", "checks": "read", "issues": "write"}


class GitHubApp:
    def __init__(self) -> None:
        self.is_installed, self.is_suspended = True, False
        self.status = 201  # of a good request
        self.lasts = timedelta(hours=1)
        self.ahead = timedelta()  # of its clock
        self.asked: list[dict[str, Any]] = []  # what permissions
        self.proofs: list[str] = []
        self.tokens: list[str] = []
        self.called: list[tuple[str, int]] = []
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"

    def give(self, path: str, authorization: str, body: dict[str, Any], at: datetime) -> tuple[int, dict[str, Any]]:
        if path != f"/app/installations/{INSTALLATION}/access_tokens" or not self.is_installed:
            return 404, {"message": "Not Found"}
        if not self._is_proof(authorization.removeprefix("Bearer "), at):
            return 401, {"message": "A JSON web token could not be decoded"}
        if self.is_suspended:
            return 403, {"message": "This installation has been suspended"}
        wanted = body.get("permissions", GIVEN)
        if any(GIVEN.get(name) != level for name, level in wanted.items()):
            return 422, {"message": "The permissions requested are not granted to this installation."}
        if self.status != 201:
            return self.status, {"message": "You have exceeded a secondary rate limit."}
        self.asked.append(body)
        self.tokens.append(f"ghs_token{len(self.tokens)}of1234567890")
        ends = f"{at + self.lasts:%Y-%m-%dT%H:%M:%SZ}"
        return 201, {"token": self.tokens[-1], "expires_at": ends, "permissions": wanted, "repository_selection": "all"}

    def _is_proof(self, proof: str, at: datetime) -> bool:
        self.proofs.append(proof)
        public = rsa_key(OURS).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        try:
            claims = jwt.decode(proof, RSAKey.import_key(public), algorithms=["RS256"]).claims
        except JoseError:
            return False
        now = at.timestamp()
        is_short = claims["exp"] - claims["iat"] <= 600
        return bool(claims["iss"] == APP and claims["iat"] <= now < claims["exp"] and is_short)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def setup(self) -> None:
                super().setup()
                self.at = datetime.now(UTC) + hub.ahead  # of the whole answer, whose header and content name it

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or "{}")
                self._say(*hub.give(self.path, self.headers["Authorization"] or "", body, self.at))

            def do_GET(self) -> None:
                is_known = self.headers["Authorization"] == f"Bearer {hub.tokens[-1] if hub.tokens else '-'}"
                hub.called.append((self.path, 200 if is_known else 401))
                self._say(200 if is_known else 401, {"full_name": "ada/shop"})

            def date_time_string(self, timestamp: float | None = None) -> str:
                return f"{self.at:%a, %d %b %Y %H:%M:%S GMT}"

            def _say(self, status: int, content: dict[str, Any]) -> None:
                body = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        return Handler


@contextmanager
def serving_github_app(monkeypatch: pytest.MonkeyPatch) -> Iterator[GitHubApp]:
    """The provider `github_app` is this server."""
    hub = GitHubApp()
    there = replace(
        providers()["github_app"],
        token_url=f"http://{hub.host}/app/installations/{{installation}}/access_tokens",
        hosts=(hub.host,),
    )
    monkeypatch.setitem(cast(dict[str, Provider], providers()), "github_app", there)  # a dict, and cached
    with answering(hub.server):
        yield hub
