"""Authenticate a delivery and turn it into an event."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from triggers.accept import Incoming
from triggers.sources.http.depth import depth_of
from triggers.sources.http.headers import redact
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.scheme import Delivery, Reply, Scheme, schemes


class Misconfigured(Exception):
    """The source's settings are invalid: its operator must correct them."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """An authenticated delivery as an event, and the secret that matched."""

    event: Incoming
    secret: SigningSecret | None


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """An authenticated delivery that is no event, with its answer and the secret that matched."""

    reply: Reply
    secret: SigningSecret | None


def receive(
    kind: str,
    settings: Mapping[str, object],
    secrets: Sequence[SigningSecret],
    delivery: Delivery,
    *,
    joins_equal_bodies: bool = False,
) -> Receipt | Greeting:
    """Verify a delivery, then read it. Raises only Rejected and Misconfigured.

    With `joins_equal_bodies`, the body is the id of an event whose own id is not signed."""
    scheme, cleaned = _scheme(kind, settings)
    proof = scheme.prove(delivery, secrets, cleaned)
    if reply := scheme.greet(delivery, proof, cleaned):
        return Greeting(reply=reply, secret=proof.secret)
    described = scheme.describe(delivery, proof, cleaned)
    is_named_by_body = joins_equal_bodies and scheme.leaves_id_unsigned(cleaned)
    event = Incoming(
        source_id=delivery.source_id,
        ce_source=described.source or delivery.endpoint,
        ce_id=f"body:{hashlib.sha256(delivery.body).hexdigest()}" if is_named_by_body else described.id,
        type=described.type,
        subject=described.subject,
        time=described.time,
        data=described.payload.data,
        data_error=described.payload.error,
        body=delivery.body,
        headers=redact(delivery.headers, scheme.secret_headers(cleaned)),
        depth=depth_of(delivery.headers, described.payload.data),
    )
    return Receipt(event=event, secret=proof.secret)


def shake_hands(
    kind: str, settings: Mapping[str, object], secrets: Sequence[SigningSecret], delivery: Delivery
) -> Reply | None:
    """The answer to a GET or OPTIONS request, if this kind of sender makes any. Raises only Rejected and Misconfigured."""
    scheme, cleaned = _scheme(kind, settings)
    return scheme.handshake(delivery, secrets, cleaned)


def _scheme(kind: str, settings: Mapping[str, object]) -> tuple[Scheme[Any], Any]:
    try:
        scheme = schemes()[kind]
        return scheme, scheme.clean_settings(settings)
    except (KeyError, InvalidSettings) as error:
        raise Misconfigured(f"the settings of this {kind} source are invalid: {error}") from None
