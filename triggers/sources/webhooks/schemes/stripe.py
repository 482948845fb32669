import hmac
import json
import secrets as random
from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import uuid4

from triggers.sources.http.payload import read_payload
from triggers.sources.kind import Group, register
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.naming import UNNAMED_TYPE, body_id, event_id, event_type, subject_at, time_at, value_at
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, fresh_time, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample
from triggers.sources.webhooks.schemes.shared_secret import NoSettings, SharedSecret

PREFIX = "whsec_"
MOST_SIGNATURES = 16


@register
class Stripe(SharedSecret[NoSettings]):
    """Stripe signs the time of the attempt and the body, which has the id of the event."""

    name = "stripe"
    label = "Stripe"
    help_text = "For event destinations of Stripe. Events are named as at Stripe: invoice.paid."
    group = Group.COMMERCE
    setup = (
        "In the Workbench of Stripe, open Webhooks → Add destination.",
        "Choose the events that agents need, then the destination type Webhook endpoint.",
        "Enter {url} as Endpoint URL and create the destination.",
        "Copy its signing secret, which begins with whsec_, and enter it here.",
    )
    docs_url = "https://docs.stripe.com/webhooks"
    is_secret_given = True
    settings_class = NoSettings

    def clean_secret(self, secret: str) -> str:
        if not secret.strip().startswith(PREFIX):
            raise InvalidSettings(
                {"secret": "must begin with whsec_: copy the signing secret of the destination, not an API key"}
            )
        return secret.strip()

    def new_secret(self) -> str:
        return PREFIX + random.token_urlsafe(32)

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: NoSettings) -> Proof:
        timestamp, given = _parts(delivery.headers.get("stripe-signature", b""))
        signed_at = fresh_time(timestamp, delivery.received_at)

        def proves(secret: bytes) -> bool:
            # Two while a secret is replaced: Stripe signs with the old and the new one.
            expected = _signature(secret, timestamp, delivery.body)
            return any(hmac.compare_digest(expected, signature) for signature in given)

        return Proof(secret=matching_secret(secrets, proves), signed_at=signed_at)

    def describe(self, delivery: Delivery, proof: Proof, settings: NoSettings) -> Description:
        payload = read_payload(delivery.body)
        id_ = value_at(payload.data, "id")
        return Description(
            id=event_id(id_) if id_ else body_id(delivery),
            type=event_type(value_at(payload.data, "type")) or UNNAMED_TYPE,
            # `data.object` of snapshot events, `related_object` of thin ones.
            subject=subject_at(payload.data, "data.object.id", "related_object.id"),
            time=time_at(payload.data, "created"),
            payload=payload,
        )

    def sample(self, settings: NoSettings) -> Sample:
        invoice = {"id": "in_test", "object": "invoice", "amount_paid": 4200, "currency": "eur", "status": "paid"}
        event = {"id": f"evt_{uuid4().hex}", "object": "event", "type": "invoice.paid", "livemode": False}
        body = json.dumps(event | {"data": {"object": invoice}}, indent=2).encode()
        return Sample(body=body, headers={"Content-Type": "application/json; charset=utf-8"})

    def sign(self, sample: Sample, secret: bytes, at: datetime, settings: NoSettings) -> Mapping[str, str]:
        timestamp = str(int(at.timestamp()))
        signature = _signature(secret, timestamp.encode(), sample.body)
        return {"Stripe-Signature": f"t={timestamp},v1={signature.decode()}"}


def _parts(header: bytes) -> tuple[bytes, list[bytes]]:
    """The timestamp and the signatures of version 1. Other versions are ignored: v0 is for test events only."""
    parts = [part.strip().partition(b"=") for part in header.split(b",")]
    timestamps = [value for name, _, value in parts if name == b"t"]
    signatures = [value for name, _, value in parts if name == b"v1"]
    if len(timestamps) != 1:
        raise Rejected("stripe-signature is missing or has not one timestamp")
    if len(signatures) > MOST_SIGNATURES:
        raise Rejected(f"stripe-signature lists more than {MOST_SIGNATURES} signatures")
    return timestamps[0], signatures


def _signature(secret: bytes, timestamp: bytes, body: bytes) -> bytes:
    return hmac.digest(secret, b"%b.%b" % (timestamp, body), "sha256").hex().encode()
