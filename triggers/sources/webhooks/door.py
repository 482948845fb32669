"""The door of a source: verify, record, answer. Nothing else is done before the answer."""

from contextlib import suppress
from dataclasses import dataclass, field
from uuid import UUID

from rest_framework.exceptions import MethodNotAllowed, NotFound
from uuid_utils.compat import uuid7

from runs.db import host_clock
from runs.db.outage import CONNECTION_ERRORS
from triggers.accept import Accepted, Incoming, SourceChanged, accept_verified, require_free
from triggers.sources.backlog import LOOK_EVERY, seconds_since_look, was_exceeded
from triggers.sources.http.answers import Unavailable, on_live_connection, require_room
from triggers.sources.http.headers import Headers
from triggers.sources.kind import Waits
from triggers.sources.webhooks.acts import carry_out
from triggers.sources.webhooks.endpoint import Endpoint, kept, note_match, read_endpoint
from triggers.sources.webhooks.limits import require_allowed, require_size, take_turn
from triggers.sources.webhooks.proof import SigningSecret
from triggers.sources.webhooks.receive import Acting, Greeting, Receipt, receive
from triggers.sources.webhooks.scheme import Delivery, Reply

READINGS = 5  # of a source that changes while a delivery is verified; then its sender tries again


@dataclass(frozen=True, kw_only=True)
class Arrival:
    """A request at the door. `client` is the address it comes from; None: Wakeful itself, which any source admits. `id` stays the same
    when it is tried again: its first event may be committed although nothing answered so."""

    method: str
    url: str
    headers: Headers
    body: bytes
    client: str | None
    id: UUID = field(default_factory=uuid7)


@dataclass(frozen=True, kw_only=True)
class Taken:
    """The outcome of a delivery: its events, none of a handshake; `reply` is the answer if this sender expects a
    special one, `secret` the one that proved it. `is_act`: a person has acted by it, which is committed.
    """

    events: tuple[Accepted, ...] = ()
    reply: Reply | None = None
    secret: SigningSecret | None = None
    is_act: bool = False


@dataclass(frozen=True, kw_only=True)
class Ready:
    """A delivery that is verified with what this process knows of its source: nothing but the insert of its event is left."""

    endpoint: Endpoint
    event: Incoming
    secret: SigningSecret | None


class WrongMethod(MethodNotAllowed):
    """The source takes other methods."""

    def __init__(self, method: str, *allowed: str) -> None:
        super().__init__(method)
        self.allowed = allowed or ("POST",)


def take(slug: str, arrival: Arrival, *, kind: str = "") -> Taken:
    """Verify a delivery and record its event; with a `kind`, only of a source of that kind. Every refusal is an exception that
    `refusals.refusal_of` knows.

    It is verified with what this process knows of the source. The insert, or what a person does by it, checks that nothing of it has
    changed; whatever else comes of it, a refusal or the answer to a greeting, stands only if the source is read again and has not
    changed."""
    turns: set[UUID] = set()
    endpoint, taken = _take_by_known(slug, arrival, kind, turns) or _take_from_rows(slug, arrival, kind, turns)
    note_match(endpoint, taken.secret)
    return taken


def make_ready(slug: str, arrival: Arrival) -> Ready | None:
    """The delivery, for an event loop: it waits for nothing. None: only `take` knows what comes of it; that may be a refusal."""
    endpoint = kept.get(slug)
    if endpoint is None or seconds_since_look() > 2 * LOOK_EVERY:
        return None
    try:
        scheme, _ = endpoint.cleaned
        if scheme.fetches or _per_minute(endpoint):
            return None
        _require_fit(endpoint, arrival, "")
        if was_exceeded(endpoint.id, scheme.waits or Waits.SENDER, is_verified=scheme.is_verified):
            return None
        receipt = _received(endpoint, arrival)
        if not isinstance(receipt, Receipt) or len(receipt.events) != 1:
            return None
        require_free(receipt.event)
    except Exception:
        return None  # `take` raises it again, and its caller answers and logs it
    return Ready(endpoint=endpoint, event=receipt.event, secret=receipt.secret)


def greet(slug: str, arrival: Arrival) -> Reply:
    """The answer to a GET or OPTIONS request, with which some senders check the address."""
    endpoint = on_live_connection(lambda: read_endpoint(slug))
    _require_allowed(endpoint, arrival)
    scheme, settings = endpoint.cleaned
    reply = scheme.handshake(_delivery(endpoint, arrival), endpoint.secrets, settings)
    if reply is None:
        raise WrongMethod(arrival.method, *scheme.methods)
    return reply


def _take_by_known(slug: str, arrival: Arrival, kind: str, turns: set[UUID]) -> tuple[Endpoint, Taken] | None:
    """None: nothing is known of the source, or it has changed."""
    if (known := kept.get(slug)) is None:
        return None
    try:
        taken = _take(known, arrival, kind, turns)
    except SourceChanged:
        return None
    except CONNECTION_ERRORS:
        raise
    except Exception:
        if _has_changed(known):
            return None
        raise
    is_recorded = bool(taken.events) or taken.is_act
    return (known, taken) if is_recorded or not _has_changed(known) else None


def _has_changed(known: Endpoint) -> bool:
    return on_live_connection(lambda: read_endpoint(known.slug)).state != known.state


def _take_from_rows(slug: str, arrival: Arrival, kind: str, turns: set[UUID]) -> tuple[Endpoint, Taken]:
    for _ in range(READINGS):
        endpoint = on_live_connection(lambda: read_endpoint(slug))
        with suppress(SourceChanged):
            return endpoint, _take(endpoint, arrival, kind, turns)
    raise Unavailable


def _take(endpoint: Endpoint, arrival: Arrival, kind: str, turns: set[UUID]) -> Taken:
    """SourceChanged: nothing was recorded. `turns`: the sources whose rate has counted this delivery."""
    _require_fit(endpoint, arrival, kind)
    scheme = endpoint.scheme
    on_live_connection(lambda: _require_room(endpoint))
    if not scheme.is_verified:  # otherwise after the proof, so that strangers use up no turn of the sender
        on_live_connection(lambda: _take_turn(endpoint, turns))
    receipt = _received(endpoint, arrival)
    # A test event proves nothing about the sender: its secret is still to be entered there.
    used = receipt.secret if arrival.client is not None else None
    if isinstance(receipt, Greeting):
        return Taken(reply=receipt.reply, secret=used)
    if scheme.is_verified:
        on_live_connection(lambda: _take_turn(endpoint, turns))
    if isinstance(receipt, Acting):
        reply = on_live_connection(lambda: carry_out(endpoint, receipt.act, used))
        return Taken(reply=reply, secret=used, is_act=True)
    accepted = on_live_connection(lambda: accept_verified(receipt.events, endpoint.state))
    return Taken(events=tuple(accepted), reply=scheme.accepted, secret=used)


def _require_fit(endpoint: Endpoint, arrival: Arrival, kind: str) -> None:
    _require_allowed(endpoint, arrival)
    if kind and endpoint.kind != kind:
        raise NotFound
    scheme = endpoint.scheme
    if arrival.method not in scheme.methods:
        raise WrongMethod(arrival.method, *scheme.methods)
    require_size(len(arrival.body), endpoint.limits.max_body or scheme.largest)


def _received(endpoint: Endpoint, arrival: Arrival) -> Receipt | Greeting | Acting:
    return receive(
        *endpoint.cleaned,
        endpoint.secrets,
        _delivery(endpoint, arrival),
        joins_equal_bodies=endpoint.limits.equal_bodies == "duplicate",
    )


def _require_allowed(endpoint: Endpoint, arrival: Arrival) -> None:
    if arrival.client is not None:
        require_allowed(arrival.client, endpoint.limits)


def _require_room(endpoint: Endpoint) -> None:
    scheme = endpoint.scheme
    waits = scheme.waits or Waits.SENDER
    require_room(endpoint.id, waits=waits, is_verified=scheme.is_verified, status=scheme.overloaded)


def _take_turn(endpoint: Endpoint, turns: set[UUID]) -> None:
    if endpoint.id not in turns:
        take_turn(endpoint.id, _per_minute(endpoint), status=endpoint.scheme.overloaded)
        turns.add(endpoint.id)


def _per_minute(endpoint: Endpoint) -> int:
    return endpoint.limits.per_minute or endpoint.scheme.per_minute


def _delivery(endpoint: Endpoint, arrival: Arrival) -> Delivery:
    return Delivery(
        source_id=endpoint.id,
        endpoint=f"/hooks/{endpoint.slug}/",
        headers=arrival.headers,
        body=arrival.body,
        received_at=host_clock.now(),
        method=arrival.method,
        url=arrival.url,
        per_minute=endpoint.limits.per_minute,
        id=arrival.id,
    )
