"""The token of an installation of a GitHub App: the request for it, and the answer.

The app proves itself by a JWT (RS256, RFC 7519) that it signs with its private key, which takes the place of the client's secret. The
token lasts for an hour, and no person logs in.
"""

import base64
import json
import re
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

LONGEST_KEY = 20_000  # characters of a private key in PEM
BEHIND = 60  # seconds by which GitHub's clock may be behind ours
LASTS = 540  # seconds of a proof; GitHub takes at most ten minutes
LEVELS = ("read", "write", "admin")
PERMISSION = re.compile(rf"[a-z_]{{1,60}}:({'|'.join(LEVELS)})")
SUSPENDED = "installation_suspended"
REMOVED = "installation_removed"
IN_WORDS = {
    SUSPENDED: "GitHub has suspended the installation. Unsuspend it there, under Applications → Installed GitHub Apps → Configure",
    REMOVED: "GitHub knows no such installation of the app (any more). Install the app again, and enter the new installation ID",
    "status-401": "GitHub does not accept the proof of the app. Check the app's ID and its private key, and the clock of this host",
    "status-422": "GitHub does not give what was chosen. Give the app these permissions there, or choose less here",
}


def wrong_with_key(pem: str) -> str:
    """Why this cannot sign; empty: it can."""
    try:
        _key_of(pem)
    except ValueError:
        return "It is no RSA private key in PEM: copy the whole file that GitHub gave you, with its first and its last line."
    return ""


def headers_of(app: str, pem: str) -> dict[str, str]:
    """The headers of a request in the name of the app. ValueError: this is no key."""
    # Only a process that requests such a token needs these modules.
    from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
    from cryptography.hazmat.primitives.hashes import SHA256

    now = int(time.time())
    claims = {"iss": app, "iat": now - BEHIND, "exp": now + LASTS}
    signed = f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part(claims)}"
    signature = _encoded(_key_of(pem).sign(signed.encode(), PKCS1v15(), SHA256()))
    return {
        "Authorization": f"Bearer {signed}.{signature}",
        "Accept": "application/vnd.github+json",
        "Content-Type": "application/json",
        "X-GitHub-Api-Version": "2022-11-28",
    }


def body_of(scopes: Sequence[str]) -> bytes:
    """A request for these permissions (PERMISSION) alone, of each the highest level; none: for all that the app has."""
    permissions = dict(sorted((one.split(":") for one in scopes), key=lambda one: LEVELS.index(one[1])))
    return json.dumps({"permissions": permissions} if permissions else {}).encode()


def code_of(status: int, content: Mapping[str, Any]) -> str:
    """The error of an answer in a word; empty: it is none, or one of the moment, such as a limit of rate."""
    said = str(content.get("message", "")).lower()
    if status == 403:
        return SUSPENDED if "suspended" in said else ""
    if status == 404:
        return REMOVED
    return f"status-{status}" if status >= 400 else ""


def permissions_in(content: Mapping[str, Any]) -> list[str]:
    """Such as issues:write."""
    given = content.get("permissions")
    found = (f"{name}:{level}" for name, level in given.items()) if isinstance(given, dict) else ()
    return sorted(one for one in found if PERMISSION.fullmatch(one))


def life_in(content: Mapping[str, Any], at: datetime | None) -> timedelta | None:
    """How long the token lasts, by the clock of the answer, which was sent `at`; None: the answer has no time."""
    try:
        ends = datetime.fromisoformat(str(content.get("expires_at")))
        return ends - (at or datetime.now(UTC))
    except (ValueError, TypeError):
        return None


def _key_of(pem: str) -> "RSAPrivateKey":
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem.strip().encode(), password=None)
    except Exception as error:  # of OpenSSL, too; none may be quoted
        raise ValueError("no private key") from error
    if not isinstance(key, RSAPrivateKey):
        raise ValueError("no RSA key")
    return key


def _part(content: Mapping[str, Any]) -> str:
    return _encoded(json.dumps(content, separators=(",", ":")).encode())


def _encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
