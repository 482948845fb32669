"""The demo: the sources of its agents, and signed requests to paste."""

import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from runs.db.encryption import decrypt
from triggers.models import Secret, Source
from triggers.sources.secrets import rotate

SLUG = "demo"  # a shop with orders and refunds, see agents.library.order_intake and order_refund
GITHUB = "github"  # see agents.library.github_issue_triage
BY = "demo"
SETTINGS = {
    "algorithm": "sha256",
    "encoding": "hex",
    "header": "X-Signature",
    "prefix": "sha256=",
    "template": "{body}",
    "id_path": "id",  # signed with the body; a header is not signed and can be changed
    "id_header": "X-Delivery-Id",
    "type_path": "type",
}
# Nothing in it expires: the same line works tomorrow.
ORDER = {"order": "A-1001"}
PLACED = {"type": "order.placed", **ORDER, "total": "42.50"}
REFUND = {"type": "refund.requested", **ORDER}
CHASE = {"type": "invoices.chase"}  # see agents.library.invoice_chaser
RETURNED = {"type": "parcel.returned", **ORDER}


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Requests to try the demo."""

    curl: str
    refund: str
    returned: str
    chase: str


def load_demo() -> Demo:
    """Create the demo's sources if missing; the requests have new delivery ids each time."""
    with transaction.atomic():
        source, _ = Source.objects.get_or_create(slug=SLUG, defaults={"kind": "hmac", "settings": SETTINGS})
        secret = _secret(source) or rotate(source, by=BY).encode()
        github, is_new = Source.objects.get_or_create(slug=GITHUB, defaults={"kind": "github"})
        if is_new:
            rotate(github, by=BY)
        make_invoices()
    placed, refund, returned, chase = (_curl(source, secret, data) for data in (PLACED, REFUND, RETURNED, CHASE))
    return Demo(curl=placed, refund=refund, returned=returned, chase=chase)


def make_invoices() -> None:
    """One invoice that is overdue and one that is paid, of the same customer."""
    from agents.library.models import Invoice  # an app of the demo alone

    last_month = timezone.now().date() - timedelta(days=30)
    ada = {"customer": "Ada", "email": "ada@example.com", "due_on": last_month}
    Invoice.objects.get_or_create(number="I-1001", defaults={**ada, "amount": 120})
    Invoice.objects.get_or_create(number="I-1000", defaults={**ada, "amount": 80, "paid_on": last_month})


def _secret(source: Source) -> bytes | None:
    """The newest secret, if a key can decrypt it."""
    newest = Secret.objects.filter(source=source).order_by("-pk").first()
    try:
        return decrypt(bytes(newest.ciphertext)) if newest else None
    except InvalidToken:
        return None


def _curl(source: Source, secret: bytes, data: Mapping[str, str]) -> str:
    how, id = source.settings, str(uuid4())
    is_in_body = how.get("id_path") == "id"
    body = json.dumps({**({"id": id} if is_in_body else {}), **data}, separators=(",", ":"))
    id_field = "" if is_in_body else f"-H '{how['id_header']}: {id}' "
    signature = how["prefix"] + hmac.digest(secret, body.encode(), how["algorithm"]).hex()
    url = f"http://127.0.0.1:{settings.WAKEFUL_PORT}/hooks/{source.slug}/"
    return f"curl -i {url} -H 'Content-Type: application/json' {id_field}-H '{how['header']}: {signature}' -d '{body}'"
