"""The address a request comes from, for the audit log, log lines and the brake on logins."""

from collections.abc import Callable
from ipaddress import ip_address, ip_network

import structlog
from django.conf import settings
from django.http import HttpRequest, HttpResponse

from runs.models.audit import CLIENT


def address_of(request: HttpRequest) -> str:
    """The client's IP address, or "". Each of the WAKEFUL_PROXIES appends the address it was called from to
    X-Forwarded-For; earlier entries come from the client and are ignored."""
    address = request.META.get("REMOTE_ADDR", "")
    passed = request.META.get("HTTP_X_FORWARDED_FOR", "").split(",")
    if settings.WAKEFUL_PROXIES and len(passed) >= settings.WAKEFUL_PROXIES:
        address = passed[-settings.WAKEFUL_PROXIES].strip() or address
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(found, "ipv4_mapped", None) or found)


def network_of(address: str) -> str:
    """The network of one client: an IPv6 client may choose any address of its /64."""
    return str(ip_network(f"{address}/64", strict=False)) if ":" in address else address


class KnowTheClient:
    """Middleware: audit entries and log lines made during a request name the client's address."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        address = address_of(request)
        token = CLIENT.set(address)
        try:
            with structlog.contextvars.bound_contextvars(client=address):
                return self.get_response(request)
        finally:
            CLIENT.reset(token)
