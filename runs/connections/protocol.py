"""What is said to a provider (RFC 6749, 7636, 7009, 8414): requests that are bounded in time and size, to public addresses only.

authlib writes the requests and the proof of the client. No error quotes what a provider answers, but for its error code.
"""

import asyncio
import json
import re
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2 as httpx
from django.conf import settings

from agents.guards.addresses import Refused, networks_of
from agents.guards.http import PACKED, Unreadable, checked_client, checked_url, is_private, read_body
from agents.kernel.redaction import know, redacted
from runs.connections.installation import (
    IN_WORDS,
    REMOVED,
    SUSPENDED,
    body_of,
    code_of,
    headers_of,
    life_in,
    permissions_in,
)
from runs.connections.provider import CLIENT, CODE, Provider
from runs.network.posting import in_words, pause_of

SECONDS = 20.0  # for a whole request
MOST_BYTES = 256 * 1024
LONGEST_TOKEN = 16_384  # characters
MOST_SCOPES = 500
LONGEST_LIFE = timedelta(days=3660)
FORM = "application/x-www-form-urlencoded"
# The errors that end a grant for good: nothing but a person's new consent helps.
ENDED = frozenset(
    {
        "invalid_grant",
        "token_revoked",
        "invalid_refresh_token",
        "bad_refresh_token",
        "token_expired",
        "account_inactive",
        REMOVED,
        SUSPENDED,
    }
)
DEAD = frozenset({"invalid_token", "token_revoked", "token_expired"})  # of a token that is to be revoked: it has ended
CODE_OF_ERROR = re.compile(r"[a-z0-9_.-]{1,60}", re.IGNORECASE)


class ProviderError(Exception):
    """The message has no secret, and nothing that a provider wrote but its error code."""


class RefusedByProvider(ProviderError):
    """The provider answers an error of OAuth, such as `invalid_grant`; `words` has its reason and the remedy, where they are known."""

    def __init__(self, code: str, words: str = "") -> None:
        is_code = CODE_OF_ERROR.fullmatch(code) and redacted(code) == code
        self.code = code if is_code else "an unknown error"
        self.words = words
        super().__init__(words or f"the provider answers {self.code}")

    @property
    def has_ended(self) -> bool:
        return self.code in ENDED


class NoAnswer(ProviderError):
    """The provider could not be reached, or gave no usable answer. `may_have_acted`: it may have carried the request out."""

    def __init__(self, reason: str, *, may_have_acted: bool, after: timedelta | None = None) -> None:
        super().__init__(reason)
        self.may_have_acted, self.after = may_have_acted, after


@dataclass(frozen=True, kw_only=True)
class Client:
    id: str
    secret: str = field(default="", repr=False)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """`lasts` and `refresh_lasts`: from the beginning of the request on; None: the provider does not say it."""

    access: str = field(repr=False)
    refresh: str = field(default="", repr=False)
    lasts: timedelta | None = None
    refresh_lasts: timedelta | None = None
    scopes: Sequence[str] | None = None


def consent_url(
    provider: Provider, client: Client, scopes: Sequence[str], *, state: str, verifier: str, redirect_uri: str
) -> str:
    """Where a person is sent to consent."""
    from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
    from authlib.oauth2.rfc7636 import create_s256_code_challenge

    more = dict(provider.parameters)
    if provider.has_pkce:
        more |= {"code_challenge": create_s256_code_challenge(verifier), "code_challenge_method": "S256"}
    url: str = prepare_grant_uri(
        provider.authorize_url,
        client_id=client.id,
        response_type="code",
        redirect_uri=redirect_uri,
        scope=joined([*scopes, *provider.always], provider),
        state=state,
        **more,
    )
    return url


def exchange(provider: Provider, client: Client, *, code: str, verifier: str, redirect_uri: str) -> Tokens:
    proof = {"code_verifier": verifier} if provider.has_pkce else {}
    return _tokens(provider, client, CODE, code=code, redirect_uri=redirect_uri, **proof)


def renew(provider: Provider, client: Client, refresh_token: str) -> Tokens:
    return _tokens(provider, client, "refresh_token", refresh_token=refresh_token)


def of_application(provider: Provider, client: Client, scopes: Sequence[str]) -> Tokens:
    if provider.signs:
        return _of_installation(provider, client, scopes)
    return _tokens(provider, client, CLIENT, scope=joined([*scopes, *provider.of_application], provider))


def revoke(provider: Provider, client: Client, token: str, hint: str) -> None:
    """RFC 7009. Raises ProviderError."""
    from authlib.oauth2.rfc7009 import prepare_revoke_token_request

    body, _ = prepare_revoke_token_request(token, hint)
    answer = _post(provider, client, provider.revoke_url, body)
    if answer.error in DEAD:
        return
    if answer.status >= 400 or answer.error:
        raise RefusedByProvider(answer.error or f"status-{answer.status}")


def metadata(issuer: str) -> Mapping[str, Any]:
    """The metadata of an issuer, by OpenID Connect Discovery or RFC 8414. Raises ProviderError."""
    base = issuer.rstrip("/")
    parts = urlsplit(base)
    addresses = [f"{base}/.well-known/openid-configuration"]
    addresses.append(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{parts.path}")
    for address in addresses:
        answer = _ask("GET", address, {})
        if answer.status == 200 and str(answer.content.get("issuer")).rstrip("/") == base:
            return answer.content
    raise NoAnswer("its issuer publishes no metadata that name it", may_have_acted=False)


def joined(scopes: Sequence[str], provider: Provider) -> str:
    return provider.separator.join(dict.fromkeys(scopes))


def _tokens(provider: Provider, client: Client, grant: str, **said: str) -> Tokens:
    from authlib.oauth2.rfc6749.parameters import prepare_token_request

    answer = _post(provider, client, provider.token_url, prepare_token_request(grant, **said))
    if answer.error:
        raise RefusedByProvider(answer.error)
    if answer.status >= 400:
        raise RefusedByProvider(f"status-{answer.status}")
    return _read_tokens(answer.content)


def _of_installation(provider: Provider, client: Client, scopes: Sequence[str]) -> Tokens:
    try:
        headers = headers_of(client.id, client.secret)
    except ValueError:
        raise RefusedByProvider("no-key", "Its private key cannot be read: enter it again") from None
    know(headers["Authorization"].removeprefix("Bearer "))
    answer = _ask("POST", provider.token_url, headers, body_of(scopes))
    if code := code_of(answer.status, answer.content):
        raise RefusedByProvider(code, IN_WORDS.get(code, ""))
    if answer.status >= 400:
        raise NoAnswer(f"it answers {answer.status}", may_have_acted=False, after=answer.after)
    token = answer.content.get("token")
    if not token or not _is_token(token):
        raise NoAnswer("the provider's answer has no access token", may_have_acted=True)
    know(token)
    life = life_in(answer.content, answer.sent_at)
    return Tokens(
        access=token, lasts=_span(life.total_seconds() if life else None), scopes=permissions_in(answer.content)
    )


def _read_tokens(content: Mapping[str, Any]) -> Tokens:
    access, refresh = content.get("access_token"), content.get("refresh_token") or ""
    if not access or not all(_is_token(token) for token in (access, refresh)):
        raise NoAnswer("the provider's answer has no access token", may_have_acted=True)
    know(access, *([refresh] if refresh else []))
    if str(content.get("token_type") or "bearer").lower() not in ("bearer", "bot"):
        raise NoAnswer("the provider gives a token that is no bearer token", may_have_acted=True)
    return Tokens(
        access=access,
        refresh=refresh,
        lasts=_span(content.get("expires_in")),
        refresh_lasts=_span(content.get("refresh_token_expires_in") or content.get("refresh_expires_in")),
        scopes=_scopes(content.get("scope")),
    )


def _is_token(said: Any) -> bool:
    return isinstance(said, str) and len(said) <= LONGEST_TOKEN and said.isascii() and said.isprintable()


def _scopes(said: Any) -> Sequence[str] | None:
    """None: the provider does not say them."""
    if not isinstance(said, str) or not said:
        return None
    return [one for one in re.split(r"[ ,]+", said)[:MOST_SCOPES] if one and one.isprintable()]


def _span(seconds: Any) -> timedelta | None:
    """A time that is no time at all is none: it would be renewed without end."""
    try:
        span = timedelta(seconds=float(seconds))
    except (TypeError, ValueError, OverflowError):
        return None
    return min(span, LONGEST_LIFE) if span > timedelta() else None


@dataclass(frozen=True, kw_only=True)
class _Answer:
    status: int
    content: Mapping[str, Any]
    sent_at: datetime | None = None  # by the clock of the provider
    after: timedelta | None = None  # its Retry-After

    @property
    def error(self) -> str:
        """The error code; Slack and GitHub answer 200 with one."""
        said = self.content.get("error")
        return str(said) if said else ""


def _post(provider: Provider, client: Client, url: str, body: str) -> _Answer:
    from authlib.oauth2.auth import ClientAuth

    method = provider.auth_method if client.secret else "none"
    headers = {"Content-Type": FORM, "Accept": "application/json"}
    url, headers, body = ClientAuth(client.id, client.secret, method).prepare("POST", url, headers, body)
    return _ask("POST", url, headers, body.encode())


def _ask(method: str, url: str, headers: Mapping[str, str], body: bytes = b"") -> _Answer:
    sent = _Sent()
    try:
        return asyncio.run(_asked(method, url, headers, body, sent))
    except ProviderError:
        raise
    except TimeoutError:
        why = f"no complete answer within {SECONDS:g} s"
    except (Refused, Unreadable) as refused:
        why = str(refused)
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
        why = in_words(error)
    raise NoAnswer(why, may_have_acted=sent.is_sent) from None


class _Sent:
    """Follows a request through the trace of httpx."""

    is_sent = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        self.is_sent |= event.endswith("send_request_body.started")


async def _asked(method: str, url: str, headers: Mapping[str, str], body: bytes, sent: _Sent) -> _Answer:
    address = checked_url(url)
    if not is_private(address):
        raise Refused("secrets are sent by https only")
    networks = networks_of(settings.WAKEFUL_HTTP_NETWORKS)
    async with asyncio.timeout(SECONDS), checked_client(networks, SECONDS) as client:
        asked = {"User-Agent": "wakeful", **PACKED, **headers}
        request = client.build_request(method, address, headers=asked, content=body, extensions={"trace": sent})
        response = await client.send(request, stream=True)
        try:
            if response.status_code >= 500 or response.status_code == 429:
                after = pause_of(response.headers.get("retry-after", ""))
                raise NoAnswer(
                    f"it answers {response.status_code}", may_have_acted=response.status_code != 429, after=after
                )
            content, is_cut = await read_body(response, MOST_BYTES)
            return _Answer(
                status=response.status_code,
                content=_content(response, b"" if is_cut else content),
                sent_at=_sent_at(response),
                after=pause_of(response.headers.get("retry-after", "")),
            )
        finally:
            await response.aclose()


def _sent_at(response: httpx.Response) -> datetime | None:
    try:
        at = parsedate_to_datetime(response.headers.get("date", ""))
    except ValueError:
        return None
    return at if at.tzinfo else None


def _content(response: httpx.Response, body: bytes) -> Mapping[str, Any]:
    if response.headers.get("content-type", "").startswith(FORM):  # of GitHub, to some
        return dict(parse_qsl(body.decode("utf-8", "replace")))
    try:
        content = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        content = None
    if isinstance(content, dict):
        return content
    if response.status_code < 400:
        raise NoAnswer("its answer is no JSON object", may_have_acted=True)
    return {}
