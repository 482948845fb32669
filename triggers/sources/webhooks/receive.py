"""From a delivery nobody vouches for to an event that may be recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from triggers.sources.headers import redact
from triggers.sources.webhooks.fields import InvalidSettings
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.scheme import Delivery, schemes


class Misconfigured(Exception):
    """The source's own settings cannot be used; its operator must act, not its sender."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """A proven delivery as an event, and the secret that proved it."""

    ce_source: str
    ce_id: str
    type: str
    subject: str
    time: datetime | None
    data: Any
    data_error: str
    body: bytes
    headers: Mapping[str, str]
    secret: SigningSecret | None


def receive(kind: str, settings: Mapping[str, object], secrets: Sequence[SigningSecret], delivery: Delivery) -> Receipt:
    """Verify, then read: Rejected or Misconfigured are the only ways out besides a receipt."""
    scheme = schemes().get(kind)
    if scheme is None:
        raise Misconfigured(f"{kind} is no webhook scheme")
    try:
        cleaned = scheme.clean_settings(settings)
    except InvalidSettings as error:
        raise Misconfigured(str(error)) from None
    proof = scheme.prove(delivery, secrets, cleaned)
    described = scheme.describe(delivery, proof, cleaned)
    return Receipt(
        ce_source=delivery.endpoint,
        ce_id=described.id,
        type=described.type,
        subject=described.subject,
        time=described.time,
        data=described.payload.data,
        data_error=described.payload.error,
        body=delivery.body,
        headers=redact(delivery.headers, scheme.secret_headers(cleaned)),
        secret=proof.secret,
    )
