"""Signatures of Standard Webhooks 1.0 (standardwebhooks.com), symmetric: of what is sent out, and of what its senders send here."""

import base64
import binascii
import hmac
import secrets

PREFIX = "whsec_"
SMALLEST, LARGEST = 24, 64  # bytes of a key: the 192 to 512 bits of the specification


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def key_of(secret: str) -> bytes:
    """The key of a secret. ValueError: it is none."""
    if not secret.startswith(PREFIX):
        raise ValueError("no prefix")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error:
        raise ValueError("no base64") from None
    if not SMALLEST <= len(key) <= LARGEST:
        raise ValueError("wrong length")
    return key


def signature(key: bytes, id: str, at: int, body: bytes) -> str:
    return f"v1,{mac_of(key, id.encode(), str(at).encode(), body).decode()}"


def mac_of(key: bytes, id: bytes, at: bytes, body: bytes) -> bytes:
    """In base64; of an id and a time as they stand in their headers."""
    return base64.b64encode(hmac.digest(key, b"%b.%b.%b" % (id, at, body), "sha256"))
