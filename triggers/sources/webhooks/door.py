"""The door of a source: verify, record, answer. Nothing else is done before the answer."""

from dataclasses import dataclass

from django.utils import timezone
from rest_framework.exceptions import MethodNotAllowed, NotFound

from triggers.accept import Accepted, SourceDeleted, accept
from triggers.sources.http.answers import on_live_connection, require_room
from triggers.sources.http.headers import Headers
from triggers.sources.kind import Waits
from triggers.sources.webhooks.endpoint import Endpoint, find_endpoint, note_match
from triggers.sources.webhooks.limits import require_allowed, require_size, take_turn
from triggers.sources.webhooks.receive import Greeting, receive, shake_hands
from triggers.sources.webhooks.scheme import Delivery, Reply


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request at the door. `client` is the address it comes from; None: Wakeful itself, which any source admits."""

    method: str
    url: str
    headers: Headers
    body: bytes
    client: str | None


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The outcome of a delivery: an event, unless it was a handshake; `reply` is the answer if this sender expects a
    special one.
    """

    event: Accepted | None = None
    reply: Reply | None = None


class WrongMethod(MethodNotAllowed):
    """The source takes other methods."""

    def __init__(self, method: str, *allowed: str) -> None:
        super().__init__(method)
        self.allowed = allowed or ("POST",)


def take(slug: str, arrival: Arrival, *, kind: str = "") -> Taken:
    """Verify a delivery and record its event; with a `kind`, only of a source of that kind. Every refusal is an exception that
    `refusals.refusal_of` knows."""
    endpoint = _endpoint(slug, arrival)
    if kind and endpoint.kind != kind:
        raise NotFound
    scheme, limits = endpoint.scheme, endpoint.limits
    if arrival.method not in scheme.methods:
        raise WrongMethod(arrival.method, *scheme.methods)
    require_size(len(arrival.body), limits.max_body or scheme.largest)
    waits = scheme.waits or Waits.SENDER
    require_room(endpoint.id, waits=waits, is_verified=scheme.is_verified, status=scheme.overloaded)
    per_minute = limits.per_minute or scheme.per_minute
    if not scheme.is_verified:  # otherwise after the proof, so that strangers use up no turn of the sender
        take_turn(endpoint.id, per_minute, status=scheme.overloaded)
    receipt = receive(
        endpoint.kind,
        endpoint.settings,
        endpoint.secrets,
        _delivery(endpoint, arrival),
        joins_equal_bodies=limits.equal_bodies == "duplicate",
    )
    # A test event proves nothing about the sender: its secret is still to be entered there.
    used = receipt.secret if arrival.client is not None else None
    if isinstance(receipt, Greeting):
        note_match(endpoint, used)
        return Taken(reply=receipt.reply)
    if scheme.is_verified:
        take_turn(endpoint.id, per_minute, status=scheme.overloaded)
    try:
        [accepted] = on_live_connection(lambda: accept([receipt.event]))
    except SourceDeleted:
        raise NotFound from None
    note_match(endpoint, used)
    return Taken(event=accepted, reply=scheme.accepted)


def greet(slug: str, arrival: Arrival) -> Reply:
    """The answer to a GET or OPTIONS request, with which some senders check the address."""
    endpoint = _endpoint(slug, arrival)
    reply = shake_hands(endpoint.kind, endpoint.settings, endpoint.secrets, _delivery(endpoint, arrival))
    if reply is None:
        raise WrongMethod(arrival.method, *endpoint.scheme.methods)
    return reply


def _endpoint(slug: str, arrival: Arrival) -> Endpoint:
    endpoint = on_live_connection(lambda: find_endpoint(slug))
    if arrival.client is not None:
        require_allowed(arrival.client, endpoint.limits)
    return endpoint


def _delivery(endpoint: Endpoint, arrival: Arrival) -> Delivery:
    return Delivery(
        source_id=endpoint.id,
        endpoint=f"/hooks/{endpoint.slug}/",
        headers=arrival.headers,
        body=arrival.body,
        received_at=timezone.now(),
        method=arrival.method,
        url=arrival.url,
        per_minute=endpoint.limits.per_minute,
    )
