"""Requests to the addresses an operator has set: the monitor that is pinged and the receiver of alarms. Only http and https
are spoken, also after a redirect, and no error quotes an address: there is a secret in its path as often as not."""

import http.client
import urllib.error
import urllib.request
from urllib.parse import urlsplit

SCHEMES = ("http", "https")


class NotTaken(OSError):
    """The other side could not be reached, or did not say yes; the text tells how, and no address."""


class _Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, newurl):  # type: ignore[no-untyped-def]  # as its base class
        # What was POSTed would be asked for with GET, and count as taken.
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
    """Why nothing can be sent to this address, without quoting it; empty if something can."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "it is no URL"
    if parts.scheme not in SCHEMES:
        return "it does not begin with http:// or https://"
    if not host:
        return "it names no host"
    if any(character <= " " or character == "\x7f" for character in url):
        return "there is a space or a control character in it"
    if not url.isascii():
        return "there are characters in it that a URL must write as %XX"
    return ""


def send(url: str, *, body: bytes | None = None, content_type: str = "", timeout: float) -> None:
    """GET it, or POST a body to it. Raises NotTaken; `timeout` is for each wait, in seconds."""
    if wrong := what_is_wrong_with(url):
        raise NotTaken(wrong)
    headers = {"User-Agent": "wakeful", **({"Content-Type": content_type} if content_type else {})}
    try:
        request = urllib.request.Request(url, data=body, headers=headers)  # noqa: S310  (its scheme was looked at)
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
    """Of an exception its sort, and of the system's own what it says: all other texts may quote the address."""
    said = error.strerror if isinstance(error, OSError) and error.errno and error.strerror else ""
    name = type(error).__name__ if isinstance(error, BaseException) else "no answer"
    return f"{name}: {said}" if said else name
