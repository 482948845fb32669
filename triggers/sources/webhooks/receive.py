"""From a delivery nobody vouches for to an event that may be recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triggers.accept import Incoming
from triggers.sources.http.headers import redact
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.scheme import Delivery, schemes
from triggers.sources.webhooks.settings import InvalidSettings


class Misconfigured(Exception):
    """The source's own settings cannot be used: its operator must act, its sender cannot."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """A proven delivery as an event, and the secret that proved it."""

    event: Incoming
    secret: SigningSecret | None


def receive(kind: str, settings: Mapping[str, object], secrets: Sequence[SigningSecret], delivery: Delivery) -> Receipt:
    """Verify, then read: Rejected and Misconfigured are the only ways out besides a receipt."""
    try:
        scheme = schemes()[kind]
        cleaned = scheme.clean_settings(settings)
    except (KeyError, InvalidSettings) as error:
        raise Misconfigured(f"the settings of this {kind} source cannot be used: {error}") from None
    proof = scheme.prove(delivery, secrets, cleaned)
    described = scheme.describe(delivery, proof, cleaned)
    event = Incoming(
        source_id=delivery.source_id,
        ce_source=delivery.endpoint,
        ce_id=described.id,
        type=described.type,
        subject=described.subject,
        time=described.time,
        data=described.payload.data,
        data_error=described.payload.error,
        body=delivery.body,
        headers=redact(delivery.headers, scheme.secret_headers(cleaned)),
    )
    return Receipt(event=event, secret=proof.secret)
