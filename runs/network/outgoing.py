"""Requests to addresses that the operator has set: the monitor to ping and the receiver of alarms. Only http and https, also after
a redirect. No error quotes an address, because its path often contains a secret."""

import http.client
import urllib.error
import urllib.request
from urllib.parse import urlsplit

SCHEMES = ("http", "https")


class NotTaken(OSError):
    """The receiver could not be reached, or did not accept the request; the message says why, without the address."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]  # as its base class
        # A redirected POST would become a GET, and count as accepted.
        if req.data is not None or urlsplit(newurl).scheme not in SCHEMES:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _opener() -> urllib.request.OpenerDirector:
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
        _Redirects,
    ):
        opener.add_handler(handler())
    return opener


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
    try:
        request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310  (its scheme was checked)
        with _opener().open(request, timeout=timeout):
            return
    except urllib.error.HTTPError as error:
        error.close()
        raise NotTaken(f"it answered {error.code}") from None
    except urllib.error.URLError as error:
        raise NotTaken(_in_words(error.reason)) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise NotTaken(_in_words(error)) from None


def _in_words(error: object) -> str:
    """The class of an exception, and the text of a system error; other texts may quote the address."""
    said = error.strerror if isinstance(error, OSError) and error.errno and error.strerror else ""
    name = type(error).__name__ if isinstance(error, BaseException) else "no answer"
    return f"{name}: {said}" if said else name
