import base64
import binascii
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar
from uuid import uuid4

from runs.network.signing import LARGEST, PREFIX, SMALLEST, mac_of, new_secret, signature
from triggers.models import Event
from triggers.sources.http.headers import as_text
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.http.timestamps import parse_timestamp
from triggers.sources.kind import Group, register
from triggers.sources.replies import Answer, answer_at, url_setting
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.naming import UNNAMED_TYPE, event_id, event_type, value_at
from triggers.sources.webhooks.proof import Proof, Rejected, SigningSecret, fresh_time, matching_secret
from triggers.sources.webhooks.scheme import Delivery, Description, Sample, Scheme

MOST_SIGNATURES = 16


@dataclass(frozen=True, kw_only=True)
class StandardWebhooksSettings:
    """Where agents answer; the specification defines everything else."""

    reply_url: str = url_setting()


@register
class StandardWebhooks(Scheme[StandardWebhooksSettings]):
    """Standard Webhooks 1.0, symmetric signatures (v1)."""

    name = "standard_webhooks"
    label = "Standard Webhooks"
    help_text = (
        "For senders that follow standardwebhooks.com: webhook-id, webhook-timestamp and webhook-signature headers."
    )
    group = Group.ANY_SENDER
    setup = (
        "At the sender, add a webhook endpoint with the address {url}.",
        "Choose the events that agents need.",
        "If the sender shows a secret that begins with whsec_, enter it here; otherwise enter the secret of this source there.",
    )
    docs_url = "https://www.standardwebhooks.com"
    settings_class = StandardWebhooksSettings
    prefix: ClassVar[str] = "webhook"  # of the three headers

    def clean_secret(self, secret: str) -> str:
        key = _key(secret.strip().encode())
        if key is None:
            raise InvalidSettings({"secret": "must be base64 after whsec_: paste the secret as the sender shows it"})
        if not SMALLEST <= len(key) <= LARGEST:
            raise InvalidSettings({"secret": f"must have {SMALLEST} to {LARGEST} bytes in base64, but has {len(key)}"})
        return secret.strip()

    def new_secret(self) -> str:
        return new_secret()

    def prove(self, delivery: Delivery, secrets: Sequence[SigningSecret], settings: StandardWebhooksSettings) -> Proof:
        id_ = delivery.headers.get(f"{self.prefix}-id")
        # A full stop in the id would make the signed text ambiguous.
        if not id_ or b"." in id_:
            raise Rejected(f"{self.prefix}-id is missing or contains a full stop")
        timestamp = delivery.headers.get(f"{self.prefix}-timestamp", b"")
        signed_at = fresh_time(timestamp, delivery.received_at)
        given = _signatures(delivery.headers.get(f"{self.prefix}-signature", b""))

        def proves(secret: bytes) -> bool:
            key = _key(secret)
            if not key:
                return False
            expected = mac_of(key, id_, timestamp, delivery.body)
            return any(hmac.compare_digest(expected, one) for one in given)

        return Proof(secret=matching_secret(secrets, proves), signed_at=signed_at)

    def answer_to(self, event: Event, settings: StandardWebhooksSettings) -> Answer:
        return answer_at(event, settings.reply_url)

    def describe(self, delivery: Delivery, proof: Proof, settings: StandardWebhooksSettings) -> Description:
        payload = read_payload(delivery.body)
        return Description(
            id=event_id(as_text(delivery.headers[f"{self.prefix}-id"])),
            type=event_type(value_at(payload.data, "type")) or UNNAMED_TYPE,
            payload=payload,
            time=_time(payload),
        )

    def sample(self, settings: StandardWebhooksSettings) -> Sample:
        body = {"type": "test", "data": {"message": "A test event from Wakeful."}}
        headers = {"Content-Type": "application/json", f"{self.prefix}-id": f"msg_{uuid4().hex}"}
        return Sample(body=json.dumps(body).encode(), headers=headers)

    def sign(
        self, sample: Sample, secret: bytes, at: datetime, settings: StandardWebhooksSettings
    ) -> Mapping[str, str]:
        timestamp = int(at.timestamp())
        signed = signature(_key(secret) or b"", sample.headers[f"{self.prefix}-id"], timestamp, sample.body)
        return {f"{self.prefix}-timestamp": str(timestamp), f"{self.prefix}-signature": signed}


def _signatures(header: bytes) -> list[bytes]:
    entries = header.split(b" ")
    if len(entries) > MOST_SIGNATURES:
        raise Rejected(f"the signature header lists more than {MOST_SIGNATURES} signatures")
    if any(entry.count(b",") > 1 for entry in entries):
        raise Rejected("the signature header is there twice")
    # Only v1: v1a is asymmetric, and later versions are unknown.
    return [entry.removeprefix(b"v1,") for entry in entries if entry.startswith(b"v1,")]


def _key(secret: bytes) -> bytes | None:
    encoded = secret.removeprefix(PREFIX.encode())
    try:
        # Some senders show secrets without padding.
        return base64.b64decode(encoded + b"=" * (-len(encoded) % 4), validate=True)
    except binascii.Error:
        return None


def _time(payload: Payload) -> datetime | None:
    try:
        return parse_timestamp(value_at(payload.data, "timestamp") or "")
    except ValueError:
        return None
