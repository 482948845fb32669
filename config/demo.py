"""The demo: one webhook source that signs with a shared secret, and a request for it to paste."""

import hmac
import json
from dataclasses import dataclass
from uuid import uuid4

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import transaction

from triggers.models import Secret, Source
from triggers.secrets import decrypt, rotate

SLUG = "demo"
BY = "demo"
SETTINGS = {
    "algorithm": "sha256",
    "encoding": "hex",
    "header": "X-Signature",
    "prefix": "sha256=",
    "template": "{body}",
    "id_header": "X-Delivery-Id",
    "type_path": "type",
}
# Signed as it stands, with nothing in it that goes stale: the same line works tomorrow.
BODY = json.dumps({"type": "demo.hello", "name": "world"}, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What a person needs to try the demo."""

    curl: str


def load_demo() -> Demo:
    """Make the demo's source, once; the request to paste has a fresh delivery id every time."""
    with transaction.atomic():
        source, _ = Source.objects.get_or_create(slug=SLUG, defaults={"kind": "hmac", "settings": SETTINGS})
        secret = _secret(source) or rotate(source, by=BY).encode()
    return Demo(curl=_curl(source, secret))


def _secret(source: Source) -> bytes | None:
    """The newest secret, if our keys can still read it."""
    newest = Secret.objects.filter(source=source).order_by("-pk").first()
    try:
        return decrypt(bytes(newest.ciphertext)) if newest else None
    except InvalidToken:
        return None


def _curl(source: Source, secret: bytes) -> str:
    how = source.settings
    signature = how["prefix"] + hmac.digest(secret, BODY.encode(), how["algorithm"]).hex()
    url = f"http://127.0.0.1:{settings.WAKEFUL_PORT}/hooks/{source.slug}/"
    return (
        f"curl -i {url} -H 'Content-Type: application/json' -H '{how['id_header']}: {uuid4()}' "
        f"-H '{how['header']}: {signature}' -d '{BODY}'"
    )
