"""Authenticate a delivery and turn it into an event."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from triggers.accept import Incoming
from triggers.sources.http.depth import depth_of
from triggers.sources.http.headers import redact
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.scheme import Act, Delivery, Description, Reply, Scheme, schemes

S = TypeVar("S")


class Misconfigured(Exception):
    """The source's settings are invalid: its operator must correct them."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """An authenticated delivery as events, one of most senders, and the secret that matched."""

    events: tuple[Incoming, ...]
    secret: SigningSecret | None

    @property
    def event(self) -> Incoming:
        """The event of a delivery that has one."""
        [event] = self.events
        return event


@dataclass(frozen=True, kw_only=True)
class Greeting:
    """An authenticated delivery that is no event, with its answer and the secret that matched."""

    reply: Reply
    secret: SigningSecret | None


@dataclass(frozen=True, kw_only=True)
class Acting:
    """An authenticated delivery by which a person acts, and the secret that matched."""

    act: Act
    secret: SigningSecret | None


def receive(
    scheme: Scheme[S],
    settings: S,
    secrets: Sequence[SigningSecret],
    delivery: Delivery,
    *,
    joins_equal_bodies: bool = False,
) -> Receipt | Greeting | Acting:
    """Verify a delivery, then read it. Raises only Rejected.

    With `joins_equal_bodies`, the body is the id of an event whose own id is not signed."""
    proof = scheme.prove(delivery, secrets, settings)
    if reply := scheme.greet(delivery, proof, settings):
        return Greeting(reply=reply, secret=proof.secret)
    if act := scheme.act(delivery, settings):
        return Acting(act=act, secret=proof.secret)
    described = scheme.describe(delivery, proof, settings)
    is_named_by_body = joins_equal_bodies and scheme.leaves_id_unsigned(settings)
    headers = redact(delivery.headers, scheme.secret_headers(settings))
    events = (
        _incoming(one, delivery, headers, is_named_by_body=is_named_by_body)
        for one in (described if isinstance(described, list) else [described])
    )
    return Receipt(events=tuple(events), secret=proof.secret)


def _incoming(
    described: Description, delivery: Delivery, headers: dict[str, str], *, is_named_by_body: bool
) -> Incoming:
    body = delivery.body if described.body is None else described.body
    return Incoming(
        source_id=delivery.source_id,
        ce_source=described.source or delivery.endpoint,
        ce_id=f"body:{hashlib.sha256(body).hexdigest()}" if is_named_by_body else described.id,
        type=described.type,
        subject=described.subject,
        time=described.time,
        data=described.payload.data,
        data_error=described.payload.error,
        body=body,
        headers=headers,
        depth=depth_of(delivery.headers, described.payload.data),
    )


def cleaned(kind: str, settings: Mapping[str, object]) -> tuple[Scheme[Any], Any]:
    """The scheme of a kind and its typed settings, as `receive` takes them. Raises Misconfigured."""
    try:
        scheme = schemes()[kind]
        return scheme, scheme.clean_settings(settings)
    except (KeyError, InvalidSettings) as error:
        raise Misconfigured(f"the settings of this {kind} source are invalid: {error}") from None
