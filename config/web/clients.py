"""The address a request comes from, for the audit log, log lines and the brake on logins."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from runs.models.audit import CLIENT

Address = IPv4Address | IPv6Address


def address_of(request: HttpRequest) -> str:
    """The client's IP address, or ""."""
    return client_of(request.META.get("REMOTE_ADDR", ""), request.META.get("HTTP_X_FORWARDED_FOR", ""))


def client_of(peer: str, forwarded: str) -> str:
    """The client's IP address, or "". Each of the WAKEFUL_PROXIES appends the address it was called from to
    X-Forwarded-For; earlier entries come from the client and are ignored, and so is a request that no proxy passed on."""
    address = _parsed(peer)
    passed = forwarded.split(",")
    if settings.WAKEFUL_PROXIES and len(passed) >= settings.WAKEFUL_PROXIES and _is_proxy(address):
        last = passed[-settings.WAKEFUL_PROXIES].strip()
        return str(_parsed(last) or "") if last else str(address or "")
    return str(address or "")


@contextmanager
def from_client(address: str) -> Iterator[None]:
    """Audit entries and log lines made in it name the client's address."""
    token = CLIENT.set(address)
    try:
        with structlog.contextvars.bound_contextvars(client=address):
            yield
    finally:
        CLIENT.reset(token)


def _is_proxy(address: Address | None) -> bool:
    named = settings.WAKEFUL_PROXY_NETWORKS
    return not named or (address is not None and any(address in network for network in _networks(tuple(named))))


@lru_cache(maxsize=8)
def _networks(named: tuple[str, ...]) -> Sequence[IPv4Network | IPv6Network]:
    return [ip_network(name) for name in named]


@lru_cache(maxsize=1024)
def _parsed(text: str) -> Address | None:
    try:
        found = ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def network_of(address: str) -> str:
    """The network of one client: an IPv6 client may choose any address of its /64."""
    return str(ip_network(f"{address}/64", strict=False)) if ":" in address else address


class KnowTheClient:
    """Middleware: audit entries and log lines made during a request name the client's address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with from_client(address_of(request)):
            return self.get_response(request)
