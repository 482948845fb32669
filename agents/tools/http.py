"""A tool that calls HTTP hosts which its author allows, and no address inside the house.

    llm = Agent(name="reader", tools=[http_tool(allow=["api.example.com", "*.example.org"])])

Each address that a host's name resolves to must be a public one, at the first request and on every redirect; the connection
goes to the checked address, so that the name cannot mean another one meanwhile. The result is data of strangers: it is fenced,
and taints the run. With methods besides GET and HEAD the tool is dangerous, so that a tainted run asks before it is called.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx2 as httpx
from django.conf import settings
from pydantic_ai import ModelRetry, Tool

from agents.exceptions import Permanent
from agents.guards import http as guarded
from agents.guards.addresses import Network, Refused, networks_of
from agents.guards.foreign_text import known_charset, storable_text
from agents.guards.http import PACKED, REDIRECTS, Unreadable, checked_client, read_body
from agents.kernel.durations import parse_duration
from agents.llm.tools import HOSTS

MAX_BYTES = 200_000
TIMEOUT = "20s"
READING = frozenset({"GET", "HEAD"})
KNOWN = frozenset({*READING, "POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, kw_only=True)
class Limits:
    allow: tuple[str, ...]
    methods: frozenset[str]
    max_bytes: int
    seconds: float
    max_redirects: int
    headers: Mapping[str, str]
    inside: tuple[Network, ...]  # networks that are allowed although they are not public


def http_tool(
    allow: Sequence[str],
    *,
    methods: Collection[str] = ("GET",),
    max_bytes: int = MAX_BYTES,
    timeout: str | float | timedelta = TIMEOUT,
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
        inside=networks_of(allow_networks),
    )

    async def http(url: str, method: str = "GET", body: str = "") -> dict[str, Any]:
        """Call an HTTP address and read its answer."""
        return await call(limits, url, method, body)

    is_reading = limits.methods <= READING
    return Tool(
        http,
        name=name,
        description=f"Call an HTTP address ({', '.join(sorted(limits.methods))}) at {', '.join(limits.allow)}.",
        metadata={"effect": "read" if is_reading else "at_most_once", "dangerous": not is_reading, HOSTS: limits.allow},
    )


def allowed_by_settings() -> Limits:
    """GET at the hosts of WAKEFUL_HTTP_ALLOW, also in the networks of WAKEFUL_HTTP_NETWORKS."""
    return Limits(
        allow=tuple(host.lower() for host in settings.WAKEFUL_HTTP_ALLOW),
        methods=frozenset({"GET"}),
        max_bytes=MAX_BYTES,
        seconds=parse_duration(TIMEOUT).total_seconds(),
        max_redirects=3,
        headers={},
        inside=networks_of(settings.WAKEFUL_HTTP_NETWORKS),
    )


async def call(limits: Limits, url: str, method: str = "GET", body: str = "") -> dict[str, Any]:
    """Make the request and return the tool's answer. ModelRetry: the address is refused."""
    try:
        return await answer_of(limits, url, method, body)
    except Refused as refused:
        raise ModelRetry(f"the call is refused: {refused}") from None


async def answer_of(limits: Limits, url: str, method: str = "GET", body: str = "") -> dict[str, Any]:
    """The answer, or its `error`, in characters that can be stored. Refused: the address is."""
    try:
        async with asyncio.timeout(limits.seconds):
            return _storable(await fetch(limits, url, method.upper(), body))
    except TimeoutError:
        return _storable({"url": url, "error": f"no answer within {limits.seconds:g} s"})
    except httpx.HTTPError as error:
        return _storable({"url": url, "error": f"{type(error).__name__}: {error}"})


async def fetch(limits: Limits, url: str, method: str, body: str) -> dict[str, Any]:
    """The answer of the last address that redirects lead to. Refused: this address is. Or an error of httpx."""
    if method not in limits.methods:
        raise Refused(f"method {method} is not allowed here; use {', '.join(sorted(limits.methods))}")
    address = checked_url(limits, url)
    answer, location = await _ask(limits, address, method, body)
    redirects = 0
    while location:
        try:
            if redirects == limits.max_redirects:
                raise Refused(f"more than {limits.max_redirects} redirects")
            if answer["status"] in (301, 302, 303) and method not in READING:
                method, body = "GET", ""
                if method not in limits.methods:
                    raise Refused("it would be called by GET, which is not allowed here")
            address = redirected(limits, address, location)
            answer, location = await _ask(limits, address, method, body)
        except Refused as refused:
            # No reason to call again: the server has done what was requested.
            return {**answer, "error": f"its redirect is refused: {refused}"}
        redirects += 1
    return answer


async def _ask(limits: Limits, address: httpx.URL, method: str, body: str) -> tuple[dict[str, Any], str]:
    """The answer of this address, and the location that it redirects to, if so."""
    content = body.encode(errors="replace") if body else None
    async with checked_client(limits.inside, limits.seconds) as client:
        request = client.build_request(method, address, headers={**PACKED, **limits.headers}, content=content)
        response = await client.send(request, stream=True)
        try:
            told = {"url": str(address), "status": response.status_code}
            if response.status_code in REDIRECTS and (location := response.headers.get("location")):
                return told, location
            return {**told, **await _read(limits, response)}, ""
        finally:
            await response.aclose()


def checked_url(limits: Limits, url: str) -> httpx.URL:
    return _allowed(limits, guarded.checked_url(url))


def redirected(limits: Limits, address: httpx.URL, location: str) -> httpx.URL:
    return _allowed(limits, guarded.redirected(address, location))


def _allowed(limits: Limits, address: httpx.URL) -> httpx.URL:
    if not guarded.is_allowed(address, limits.allow):
        raise Refused(f"its host is not allowed here; allowed are {', '.join(limits.allow)}")
    return address


async def _read(limits: Limits, response: httpx.Response) -> dict[str, Any]:
    told: dict[str, Any] = {"type": response.headers.get("content-type", "")}
    try:
        content, is_cut = await read_body(response, limits.max_bytes)
    except Unreadable as unreadable:
        return {**told, "error": str(unreadable)}
    if is_cut:
        told["cut_after_bytes"] = limits.max_bytes
    return {**told, "body": content.decode(known_charset(response.charset_encoding or "utf-8"), "replace")}


def _storable(told: dict[str, Any]) -> dict[str, Any]:
    """The text without characters that PostgreSQL cannot store."""
    return {name: storable_text(said) if isinstance(said, str) else said for name, said in told.items()}
