"""Requests to addresses that the operator has set: the monitor to ping and the receiver of alarms. Only http and https, also after
a redirect. No error quotes an address, because its path often contains a secret."""

import ssl
from urllib.parse import urlsplit

import httpx2 as httpx

from runs.network.posting import in_words, tls

SCHEMES = ("http", "https")
MOST_REDIRECTS = 10


class NotTaken(OSError):
    """The receiver could not be reached, or did not accept the request; the message gives the reason, without the address."""


def what_is_wrong_with(url: str) -> str:
    """Why this address is invalid, without quoting it; empty if it is valid."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is not a URL"
    if parts.scheme not in SCHEMES:
        return "it does not begin with http:// or https://"
    if not host:
        return "it has no host"
    if any(character <= " " or character == "\x7f" for character in url):
        return "it contains a space or a control character"
    if not url.isascii():
        return "it contains characters that a URL must write as %XX"
    return ""


def send(url: str, *, body: bytes | None = None, content_type: str = "", timeout: float) -> None:
    """GET the address, or POST a body to it. Raises NotTaken; `timeout` limits each wait, in seconds."""
    if wrong := what_is_wrong_with(url):
        raise NotTaken(wrong)
    headers = {"User-Agent": "wakeful", **({"Content-Type": content_type} if content_type else {})}
    # A redirected POST would become a GET, and count as accepted.
    method, redirects = ("GET", MOST_REDIRECTS) if body is None else ("POST", 0)
    try:
        with httpx.Client(verify=tls(), timeout=timeout) as client:
            request = client.build_request(method, url, content=body, headers=headers)
            status = _status(client, request, redirects=redirects)
    except (
        httpx.HTTPError,
        httpx.InvalidURL,
        ssl.SSLError,
        OSError,
        ValueError,
        ImportError,
    ) as error:  # ImportError: a proxy by SOCKS
        raise NotTaken(in_words(error)) from None
    if not 200 <= status < 300:
        raise NotTaken(f"it answered {status}")


def _status(client: httpx.Client, request: httpx.Request, *, redirects: int) -> int:
    """Of the last address that so many redirects lead to; those to other schemes are not followed."""
    response = client.send(request, stream=True)
    response.close()
    target = response.next_request
    if target is None or not redirects or target.url.scheme not in SCHEMES:
        return response.status_code
    return _status(client, target, redirects=redirects - 1)
