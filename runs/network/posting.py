"""POST to an address that an operator has set, within a time that holds for the whole, and say how far it came."""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx2 as httpx

from agents.guards.addresses import CheckedTransport, Network, Refused

LONGEST_PAUSE = timedelta(days=1)
READING = 2.0  # seconds for the first bytes of an answer, after its status


class NotHandedOver(OSError):
    """The receiver has not got the body; the message gives the reason, without the address."""


class CutOff(OSError):
    """The body was on its way, and no answer came: the receiver may have acted on it."""


@dataclass(frozen=True, kw_only=True)
class PostResponse:
    status: int
    after: timedelta | None = None  # Retry-After
    begins: bytes = b""  # the first bytes of its body


def post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    connect: float,
    whole: float,
    keep: int = 0,
    networks: Sequence[Network] | None = None,
) -> PostResponse:
    """The status of the answer, and the first `keep` bytes of its body. Redirects are not followed. With `networks`, hosts must
    have public addresses, or addresses in these networks. Raises NotHandedOver or CutOff."""
    progress = _Progress()
    try:
        return asyncio.run(_post(url, body, headers, connect, whole, keep, networks, progress))
    except Refused as refused:
        raise NotHandedOver(str(refused)) from None
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
        why = f"no answer within {whole:g} s" if type(error) is TimeoutError else in_words(error)
        raise (CutOff if progress.has_begun_body else NotHandedOver)(why) from None


class _Progress:
    """Follows a request through the trace of httpx."""

    def __init__(self) -> None:
        self.has_begun_body = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("send_request_body.started"):
            self.has_begun_body = True


async def _post(
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    connect: float,
    whole: float,
    keep: int,
    networks: Sequence[Network] | None,
    progress: _Progress,
) -> PostResponse:
    transport = None if networks is None else CheckedTransport(networks)
    limits = httpx.Timeout(whole, connect=connect)
    asked = {"User-Agent": "wakeful", **({"Accept-Encoding": "identity"} if keep else {}), **headers}
    async with (
        asyncio.timeout(whole + (READING if keep else 0.0)),
        httpx.AsyncClient(
            verify=tls(), timeout=limits, follow_redirects=False, transport=transport, trust_env=transport is None
        ) as client,
    ):
        request = client.build_request("POST", url, content=body, headers=asked, extensions={"trace": progress})
        async with asyncio.timeout(whole):
            response = await client.send(request, stream=True)
        try:
            begins = await _beginning(response, keep) if keep else b""
            after = pause_of(response.headers.get("retry-after", ""))
            return PostResponse(status=response.status_code, after=after, begins=begins)
        finally:
            await response.aclose()


async def _beginning(response: httpx.Response, keep: int) -> bytes:
    """An answer that comes slowly, or ends early, has its status all the same."""
    begins = bytearray()
    with suppress(httpx.HTTPError, TimeoutError):
        async with asyncio.timeout(READING / 2):
            async for chunk in response.aiter_raw():
                begins += chunk
                if len(begins) >= keep:
                    break
    return bytes(begins[:keep])


@cache
def tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()


def pause_of(said: str) -> timedelta | None:
    """Retry-After, in seconds or as a date."""
    try:
        pause = timedelta(seconds=int(said)) if said.isascii() and said.isdigit() else _until(said)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(pause, timedelta()), LONGEST_PAUSE)


def _until(said: str) -> timedelta:
    return parsedate_to_datetime(said).astimezone(UTC) - datetime.now(UTC)


def in_words(error: BaseException) -> str:
    """The system error behind it, or the class of the error; other texts may quote the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return f"{type(cause).__name__}: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
