"""Sources, and the deliveries of their senders, as the tests of the view need them."""

import hashlib
import hmac
from typing import Any

from django.test import Client

from runs.db.encryption import encrypt
from triggers.models import Secret, Source

SECRET = "a shared secret"


def make_source(slug: str = "shop", kind: str = "hmac", secret: str | None = SECRET, **fields: Any) -> Source:
    fields.setdefault("settings", {"id_header": "X-Id", "type_header": "X-Type"} if kind == "hmac" else {})
    source = Source.objects.create(slug=slug, kind=kind, **fields)
    if secret:
        add_secret(source, secret)
    return source


def add_secret(source: Source, plain: str, **window: Any) -> Secret:
    secret = Secret.objects.create(source=source, ciphertext=encrypt(plain.encode()), **window)
    secret.refresh_from_db()
    return secret


def signed_headers(body: bytes, secret: str = SECRET, id_: str = "d-1") -> dict[str, str]:
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Signature": signature, "X-Id": id_, "X-Type": "order.paid"}


def post(body: bytes, headers: dict[str, str], slug: str = "shop", **extra: Any) -> Any:
    content_type = headers.get("Content-Type", "application/json")
    extra.setdefault("CONTENT_LENGTH", str(len(body)))
    return Client().generic("POST", f"/hooks/{slug}/", body, content_type, headers=headers, **extra)
