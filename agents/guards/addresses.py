"""Connect to public addresses only, so that no address, redirect or DNS name reaches an internal host (SSRF).

Each address that a host's name resolves to must be a public one, or in a network that is allowed by name. The connection goes to
the checked address, so that the name cannot mean another one meanwhile; TLS is still checked against the name.
"""

import asyncio
import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import httpcore2 as httpcore
import httpx2 as httpx

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

# Public addresses behind which a cloud keeps what its machines may know, and networks that lead to addresses inside.
INSIDE = [
    ipaddress.ip_network(network)
    for network in ("168.63.129.16/32", "100.64.0.0/10", "192.0.0.0/24", "2002::/16", "2001::/32")
]
# All other addresses of IPv6 are inside, lead to one of IPv4, or belong to no network yet.
PUBLIC_IPV6 = ipaddress.ip_network("2000::/3")


class Refused(Exception):
    """An address that must not be called. The message gives the reason without the address, because a redirect's
    address is untrusted text.
    """


def networks_of(words: Iterable[str]) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(word) for word in words)


def find_address(host: str, port: int, networks: Sequence[Network] = ()) -> str:
    """An address of the host. Refused: it has none, or one of them is not public and in none of these networks, so that a mixture
    is refused, too."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # a part of a name that is too long or empty is a ValueError
        raise Refused("its host cannot be found") from None
    return _checked([str(entry[4][0]) for entry in found], networks)


async def find_address_async(host: str, port: int, networks: Sequence[Network] = ()) -> str:
    """`find_address`, awaitable."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        raise Refused("its host cannot be found") from None
    return _checked([str(entry[4][0]) for entry in found], networks)


def _checked(addresses: Sequence[str], networks: Sequence[Network]) -> str:
    for address in addresses:
        if not is_public(address) and not _is_in(address, networks):
            raise Refused(f"its host has the address {address}, which is not a public one")
    return addresses[0]


def is_public(address: str) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    if ip.version == 6 and ip not in PUBLIC_IPV6:
        return False
    return ip.is_global and not ip.is_multicast and not any(ip in network for network in INSIDE)


def _is_in(address: str, networks: Sequence[Network]) -> bool:
    ip = ipaddress.ip_address(address.partition("%")[0])
    return any(ip.version == network.version and ip in network for network in networks)


class CheckedTransport(httpx.AsyncHTTPTransport):
    """A transport of httpx that connects to nothing but addresses that were checked."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        super().__init__(verify=_tls(), trust_env=False, retries=0)
        self._pool = httpcore.AsyncConnectionPool(ssl_context=_tls(), network_backend=_CheckedBackend(networks))


class CheckedSyncTransport(httpx.HTTPTransport):
    """`CheckedTransport` for plain functions."""

    def __init__(self, networks: Sequence[Network] = ()) -> None:
        super().__init__(verify=_tls(), trust_env=False, retries=0)
        self._pool = httpcore.ConnectionPool(ssl_context=_tls(), network_backend=_CheckedSyncBackend(networks))


@cache
def _tls() -> ssl.SSLContext:
    """Reading the certificates takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


class _CheckedBackend(httpcore.AsyncNetworkBackend):
    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks
        self._inner = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.AsyncNetworkStream:
        address = await find_address_async(host, port, self._networks)
        return await self._inner.connect_tcp(
            address, port, timeout=timeout, local_address=local_address, socket_options=socket_options
        )

    async def connect_unix_socket(self, *arguments: Any, **named: Any) -> httpcore.AsyncNetworkStream:
        raise Refused("a socket of this machine is refused")

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _CheckedSyncBackend(httpcore.NetworkBackend):
    def __init__(self, networks: Sequence[Network]) -> None:
        self._networks = networks
        self._inner = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Any = None,
    ) -> httpcore.NetworkStream:
        address = find_address(host, port, self._networks)
        return self._inner.connect_tcp(
            address, port, timeout=timeout, local_address=local_address, socket_options=socket_options
        )

    def connect_unix_socket(self, *arguments: Any, **named: Any) -> httpcore.NetworkStream:
        raise Refused("a socket of this machine is refused")

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)
