"""POST to an address that an operator has set, within a time that holds for the whole, and say how far it came."""

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import cache
from typing import Any

import httpx2 as httpx

LONGEST_PAUSE = timedelta(hours=1)


class NotHandedOver(OSError):
    """The receiver has not got the body; the message says why, without the address."""


class CutOff(OSError):
    """The body was on its way, and no answer came: the receiver may have acted on it."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    status: int
    after: timedelta | None = None  # Retry-After


def post(url: str, body: bytes, headers: Mapping[str, str], *, connect: float, whole: float) -> Answer:
    """The status of the answer. Redirects are not followed. Raises NotHandedOver or CutOff."""
    progress = _Progress()
    try:
        return asyncio.run(_post(url, body, headers, connect, whole, progress))
    except (httpx.HTTPError, httpx.InvalidURL, ssl.SSLError, OSError, ValueError) as error:
        why = f"no answer within {whole:g} s" if type(error) is TimeoutError else _in_words(error)
        raise (CutOff if progress.has_begun_body else NotHandedOver)(why) from None


class _Progress:
    """Follows a request through the trace of httpx."""

    def __init__(self) -> None:
        self.has_begun_body = False

    async def __call__(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith("send_request_body.started"):
            self.has_begun_body = True


async def _post(
    url: str, body: bytes, headers: Mapping[str, str], connect: float, whole: float, progress: _Progress
) -> Answer:
    async with asyncio.timeout(whole):
        limits = httpx.Timeout(whole, connect=connect)
        async with httpx.AsyncClient(verify=_tls(), timeout=limits, follow_redirects=False) as client:
            request = client.build_request(
                "POST", url, content=body, headers={"User-Agent": "wakeful", **headers}, extensions={"trace": progress}
            )
            response = await client.send(request, stream=True)
            try:
                return Answer(status=response.status_code, after=_pause(response.headers.get("retry-after", "")))
            finally:
                await response.aclose()


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return httpx.create_ssl_context()


def _pause(said: str) -> timedelta | None:
    """Retry-After, in seconds or as a date."""
    try:
        pause = timedelta(seconds=int(said)) if said.isascii() and said.isdigit() else _until(said)
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(pause, timedelta()), LONGEST_PAUSE)


def _until(said: str) -> timedelta:
    return parsedate_to_datetime(said).astimezone(UTC) - datetime.now(UTC)


def _in_words(error: BaseException) -> str:
    """The class of the error, and the text of the system error behind it; other texts may quote the address."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno and cause.strerror:
            return f"{type(error).__name__}: {cause.strerror}"
        cause = cause.__cause__ or cause.__context__
    return type(error).__name__
