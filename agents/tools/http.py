"""A tool that calls HTTP hosts which its author allows, and no address inside the house.

    llm = Agent(name="reader", tools=[http_tool(allow=["api.example.com", "*.example.org"])])

Each address that a host's name resolves to must be a public one, at the first request and on every redirect; the connection
goes to the checked address, so that the name cannot mean another one meanwhile. The result is data of strangers: it is fenced,
and taints the run. With methods besides GET and HEAD the tool is dangerous, so that a tainted run asks before it is called.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpcore2 as httpcore
import httpx2 as httpx
from pydantic_ai import ModelRetry, Tool

from agents.durations import parse_duration
from agents.exceptions import Permanent

READING = frozenset({"GET", "HEAD"})
KNOWN = frozenset({*READING, "POST", "PUT", "PATCH", "DELETE"})
REDIRECTS = frozenset({301, 302, 303, 307, 308})
# Public addresses behind which a cloud keeps what its machines may know, and networks that lead to addresses inside.
INSIDE = [
    ipaddress.ip_network(network)
    for network in (
        "168.63.129.16/32",
        "100.64.0.0/10",
        "192.0.0.0/24",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "2002::/16",
        "2001::/32",
    )
]


class Refused(Exception):
    """The tool does not go there; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    allow: tuple[str, ...]
    methods: frozenset[str]
    max_bytes: int
    seconds: float
    max_redirects: int
    headers: Mapping[str, str]
    inside: tuple[Any, ...]  # networks that are allowed although they are not public


def http_tool(
    allow: Sequence[str],
    *,
    methods: Collection[str] = ("GET",),
    max_bytes: int = 200_000,
    timeout: str | float | timedelta = "20s",
    max_redirects: int = 3,
    headers: Mapping[str, str] | None = None,
    allow_networks: Iterable[str] = (),
    name: str = "http",
) -> Tool[Any]:
    """`allow` are names of hosts, such as "api.example.com", "*.example.org" (each below it) or "api.example.com:8443"; without
    a port, 80 and 443. `headers` go with each request to an allowed host. `allow_networks` ("10.1.0.0/16") names networks of
    your own that the hosts may be in. Permanent: something of that makes no sense."""
    unknown = {method.upper() for method in methods} - KNOWN
    if not allow or isinstance(allow, str) or unknown or not methods:
        raise Permanent(f"http_tool: name hosts in allow=[…], and methods of {', '.join(sorted(KNOWN))}")
    limits = Limits(
        allow=tuple(host.lower() for host in allow),
        methods=frozenset(method.upper() for method in methods),
        max_bytes=max_bytes,
        seconds=parse_duration(timeout).total_seconds(),
        max_redirects=max_redirects,
        headers=dict(headers or {}),
        inside=tuple(ipaddress.ip_network(network) for network in allow_networks),
    )

    async def http(url: str, method: str = "GET", body: str = "") -> dict[str, Any]:
        """Call an HTTP address and read its answer."""
        try:
            async with asyncio.timeout(limits.seconds):
                return await fetch(limits, url, method.upper(), body)
        except Refused as refused:
            raise ModelRetry(str(refused)) from None
        except TimeoutError:
            return {"url": url, "error": f"no answer within {limits.seconds:g} s"}
        except httpx.HTTPError as error:
            return {"url": url, "error": f"{type(error).__name__}: {error}"}

    is_reading = limits.methods <= READING
    return Tool(
        http,
        name=name,
        description=f"Call an HTTP address ({', '.join(sorted(limits.methods))}) at {', '.join(limits.allow)}.",
        metadata={"effect": "read" if is_reading else "at_most_once", "dangerous": not is_reading, "untrusted": True},
    )


async def fetch(limits: Limits, url: str, method: str, body: str) -> dict[str, Any]:
    """The answer of the last address that redirects lead to. Refused, or an error of httpx."""
    if method not in limits.methods:
        raise Refused(f"method {method} is not allowed here; use {', '.join(sorted(limits.methods))}")
    for _ in range(limits.max_redirects + 1):
        address = _address(limits, url)
        async with httpx.AsyncClient(
            transport=_Transport(limits), timeout=limits.seconds, trust_env=False, follow_redirects=False
        ) as client:
            request = client.build_request(
                method, address, headers=limits.headers, content=body.encode() if body else None
            )
            response = await client.send(request, stream=True)
            try:
                if response.status_code not in REDIRECTS or "location" not in response.headers:
                    return await _read(limits, response)
                url = str(address.join(response.headers["location"]))
                if response.status_code in (301, 302, 303) and method not in READING:
                    method, body = "GET", ""
                    if method not in limits.methods:
                        raise Refused(f"it redirects to {url} by GET, which is not allowed here")
            finally:
                await response.aclose()
    raise Refused(f"more than {limits.max_redirects} redirects")


def _address(limits: Limits, url: str) -> httpx.URL:
    try:
        address = httpx.URL(url)
    except (httpx.InvalidURL, ValueError) as error:
        raise Refused(f"{url!r} is no address: {error}") from None
    if address.scheme not in ("http", "https"):
        raise Refused(f"{url!r}: only http and https are allowed")
    if address.userinfo:
        raise Refused(f"{url!r}: an address with a user or password is refused")
    host = address.raw_host.decode().rstrip(".").lower()
    if not any(_allows(pattern, host, address) for pattern in limits.allow):
        raise Refused(f"host {host!r} is not allowed here; allowed are {', '.join(limits.allow)}")
    return address


def _allows(pattern: str, host: str, address: httpx.URL) -> bool:
    name, _, port = pattern.partition(":") if pattern.count(":") == 1 else (pattern, "", "")
    if address.port is not None and str(address.port) != port and not (not port and address.port in (80, 443)):
        return False
    if port and address.port is None:
        return False
    return host.endswith(name[1:]) if name.startswith("*.") else host == name


async def _read(limits: Limits, response: httpx.Response) -> dict[str, Any]:
    told: dict[str, Any] = {"url": str(response.url), "status": response.status_code}
    told["type"] = response.headers.get("content-type", "")
    content = bytearray()
    # As it comes: what is compressed may be a thousand times as much.
    async for chunk in response.aiter_bytes(16_384):
        content += chunk
        if len(content) > limits.max_bytes:
            del content[limits.max_bytes :]
            told["cut_after_bytes"] = limits.max_bytes
            break
    return {**told, "body": bytes(content).decode(response.charset_encoding or "utf-8", "replace")}


class _Transport(httpx.AsyncHTTPTransport):
    """Connects to nothing but addresses that were checked."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(trust_env=False, retries=0)
        self._pool = httpcore.AsyncConnectionPool(
            ssl_context=httpx.create_ssl_context(trust_env=False), network_backend=_CheckedBackend(limits)
        )


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        """TLS is still checked against the name: this is only where the bytes go."""
        address = await checked_address(host, port, self._limits)
        return await self._inner.connect_tcp(
            address, port, timeout=timeout, local_address=local_address, socket_options=socket_options
        )

    async def connect_unix_socket(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        raise Refused("a socket of this machine is refused")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


async def checked_address(host: str, port: int, limits: Limits) -> str:
    """An address of the host. Refused: one of them is not public, so that a mixture is refused, too."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise Refused(f"host {host!r} cannot be found: {error}") from None
    addresses = [str(entry[4][0]) for entry in found]
    for address in addresses:
        if not is_public(address) and not _is_allowed_inside(address, limits):
            raise Refused(f"host {host!r} has the address {address}, which is not a public one")
    return addresses[0]


def is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in INSIDE)


def _is_allowed_inside(address: str, limits: Limits) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    return any(ip.version == network.version and ip in network for network in limits.inside)
