"""Signatures of Standard Webhooks 1.0 (standardwebhooks.com), symmetric: what is sent out carries them."""

import base64
import binascii
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
SMALLEST, LARGEST = 24, 64  # bytes of a key


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
    mac = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
    return f"v1,{base64.b64encode(mac).decode()}"
