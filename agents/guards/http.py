"""What bounds each HTTP request to an address that a stranger may have chosen: its scheme, where its redirects lead, and the size of
the answer. `addresses` bounds the hosts."""

import ipaddress
import zlib
from collections.abc import Sequence

import httpx2 as httpx

from agents.guards.addresses import CheckedTransport, Network, Refused

REDIRECTS = frozenset({301, 302, 303, 307, 308})
PACKED = {"Accept-Encoding": "gzip"}  # the header for what `read_body` can unpack
PIECE = 65_536  # bytes


class Unreadable(Exception):
    """The body of an answer cannot be unpacked; the message gives the reason."""


def checked_client(networks: Sequence[Network], seconds: float) -> httpx.AsyncClient:
    """Connects to public addresses and to those in `networks`, by no proxy, and follows no redirect itself."""
    return httpx.AsyncClient(
        transport=CheckedTransport(networks), timeout=seconds, trust_env=False, follow_redirects=False
    )


def checked_url(url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, ValueError):
        raise Refused("it is no valid address") from None
    if address.scheme not in ("http", "https"):
        raise Refused("only http and https are allowed")
    if address.userinfo:
        raise Refused("an address with a user or password is not allowed")
    return address


def redirected(address: httpx.URL, location: str) -> httpx.URL:
    try:
        url = str(address.join(location))
    except (httpx.InvalidURL, ValueError):
        raise Refused("it is no valid address") from None
    target = checked_url(url)
    if (address.scheme, target.scheme) == ("https", "http"):
        raise Refused("no redirect goes from https to http, where everyone on the way could read the headers")
    return target


def is_allowed(address: httpx.URL, hosts: Sequence[str]) -> bool:
    """Is its host one of these: "api.example.com", "*.example.org" (each below it) or "api.example.com:8443"? Without a port, 80 and
    443."""
    host = address.raw_host.decode().rstrip(".").lower()
    return any(_is_host(pattern, host, address.port) for pattern in hosts)


def _is_host(pattern: str, host: str, said: int | None) -> bool:
    name, _, port = pattern.partition(":") if pattern.count(":") == 1 else (pattern, "", "")
    if said is not None and str(said) != port and not (not port and said in (80, 443)):
        return False
    if port and said is None:
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


def is_private(url: httpx.URL) -> bool:
    """Can no one on the way read what is sent there: by TLS, or inside this machine?"""
    if url.scheme == "https":
        return True
    try:
        return url.scheme == "http" and ipaddress.ip_address(url.host.strip("[]")).is_loopback
    except ValueError:
        return False


async def read_body(response: httpx.Response, most: int) -> tuple[bytes, bool]:
    """The first `most` bytes of the body, unpacked, and whether there is more. Raises Unreadable."""
    coding = response.headers.get("content-encoding", "").strip().lower()
    if coding not in ("", "identity", "gzip"):
        raise Unreadable("its content is encoded in a way that was not requested")
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16) if coding == "gzip" else None
    content, received = bytearray(), 0
    async for raw in response.aiter_raw(PIECE):
        received += len(raw)
        try:
            content += unpacker.decompress(raw, most + 1 - len(content)) if unpacker else raw
        except zlib.error:
            raise Unreadable("its content is not gzip, although its header claims it") from None
        # Both, because packed data may become a thousand times as much, or nothing at all.
        if max(len(content), received) > most:
            return bytes(content[:most]), True
    return bytes(content), False
