"""Authenticate a delivery and turn it into an event."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triggers.accept import Incoming
from triggers.sources.http.headers import redact
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.scheme import Delivery, schemes
from triggers.sources.webhooks.settings import InvalidSettings


class Misconfigured(Exception):
    """The source's settings are invalid: its operator must correct them."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """An authenticated delivery as an event, and the secret that matched."""

    event: Incoming
    secret: SigningSecret | None


def receive(kind: str, settings: Mapping[str, object], secrets: Sequence[SigningSecret], delivery: Delivery) -> Receipt:
    """Verify a delivery, then read it. Raises only Rejected and Misconfigured."""
    try:
        scheme = schemes()[kind]
        cleaned = scheme.clean_settings(settings)
    except (KeyError, InvalidSettings) as error:
        raise Misconfigured(f"the settings of this {kind} source are invalid: {error}") from None
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
