"""The demo: the sources its agents listen to, and a signed request to paste for one of them."""

import hmac
import json
from dataclasses import dataclass
from uuid import uuid4

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import transaction

from triggers.models import Secret, Source
from triggers.secrets import decrypt, rotate

SLUG = "demo"  # a shop that sends orders, see agents.library.order_intake
GITHUB = "github"  # see agents.library.github_issue_triage
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
BODY = json.dumps({"type": "order.placed", "order": "A-1001", "total": "42.50"}, separators=(",", ":"))


@dataclass(frozen=True, kw_only=True)
class Demo:
    """What a person needs to try the demo."""

    curl: str


def load_demo() -> Demo:
    """Make the demo's sources, once; the request to paste has a fresh delivery id every time."""
    with transaction.atomic():
        source, _ = Source.objects.get_or_create(slug=SLUG, defaults={"kind": "hmac", "settings": SETTINGS})
        secret = _secret(source) or rotate(source, by=BY).encode()
        github, is_new = Source.objects.get_or_create(slug=GITHUB, defaults={"kind": "github"})
        if is_new:
            rotate(github, by=BY)
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
