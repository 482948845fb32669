"""Ask an address that an operator has set, within limits of time, size and redirects, and at public addresses only.

The address, its redirects and its name in DNS may lead elsewhere tomorrow: only public addresses and those in WAKEFUL_HTTP_NETWORKS
are called. Headers that the operator gave, which may hold a secret, do not follow a redirect to another origin. No error quotes an
address, because it may contain a secret.
"""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx2 as httpx
from django.conf import settings

from agents.guards.addresses import Refused, networks_of
from agents.guards.http import PACKED, REDIRECTS, Unreadable, checked_client, checked_url, read_body, redirected
from runs.network.posting import in_words


class NotFetched(OSError):
    """There is no answer, or it is over a limit; the message gives the reason, without the address."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """`headers` are sent to any origin that redirects lead to, with the same method and content; `private` ones to the first only."""

    url: str
    method: str = "GET"
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    private: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Limits:
    seconds: float  # for the whole, with all redirects
    bytes: int  # of the answer, packed and unpacked
    redirects: int = 3


@dataclass(frozen=True, kw_only=True)
class FetchResponse:
    """The answer of the last address that redirects led to. Names of `headers` are in lower case."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    links: Mapping[str, str] = field(default_factory=dict)  # of the header Link, by relation


def fetch(request: Request, limits: Limits) -> FetchResponse:
    """Raises NotFetched. A status of an error is an answer."""
    try:
        return asyncio.run(_fetch(request, limits))
    except TimeoutError:
        raise NotFetched(f"no complete answer within {limits.seconds:g} s") from None
    except Refused as refused:
        raise NotFetched(f"refused: {refused}") from None
    except Unreadable as unreadable:
        raise NotFetched(str(unreadable)) from None
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
        if isinstance(error, NotFetched):
            raise
        raise NotFetched(in_words(error)) from None


async def _fetch(request: Request, limits: Limits) -> FetchResponse:
    first = url = checked_url(request.url)
    async with (
        asyncio.timeout(limits.seconds),
        checked_client(networks_of(settings.WAKEFUL_HTTP_NETWORKS), limits.seconds) as client,
    ):
        for _ in range(limits.redirects + 1):
            private = request.private if _origin(url) == _origin(first) else {}
            answer = await _ask(client, request, url, {**request.headers, **private}, limits)
            location = answer.headers.get("location") if answer.status in REDIRECTS else None
            if not location:
                return answer
            url = redirected(url, location)
    raise NotFetched(f"more than {limits.redirects} redirects")


async def _ask(
    client: httpx.AsyncClient, request: Request, url: httpx.URL, headers: Mapping[str, str], limits: Limits
) -> FetchResponse:
    sent = {"User-Agent": "wakeful", **PACKED, **headers}
    asked = client.build_request(request.method, url, headers=sent, content=request.content or None)
    response = await client.send(asked, stream=True)
    try:
        is_last = response.status_code not in REDIRECTS
        return FetchResponse(
            url=str(url),
            status=response.status_code,
            headers={name.lower(): value for name, value in response.headers.items()},
            body=await _body(response, limits.bytes) if is_last else b"",
            links={name: link["url"] for name, link in response.links.items() if name and "url" in link},
        )
    finally:
        await response.aclose()


async def _body(response: httpx.Response, most: int) -> bytes:
    body, is_cut = await read_body(response, most)
    if is_cut:
        raise NotFetched(f"its answer is larger than {most:,} bytes")
    return body


def _origin(url: httpx.URL) -> tuple[str, bytes, int | None]:
    return url.scheme, url.raw_host, url.port
