"""CloudEvents 1.0 in messages of brokers: structured, or with the attributes in headers (bindings of Kafka, AMQP and NATS)."""

from collections.abc import Mapping
from urllib.parse import quote

from triggers.sources.cloudevents.format import InvalidEvent, UnsupportedMedia, read_message
from triggers.sources.http.headers import Headers
from triggers.sources.http.payload import Payload
from triggers.sources.runner import Poison, Received

# Of Kafka; of AMQP, in both spellings; of NATS and HTTP.
PREFIXES = ("ce_", "cloudEvents:", "cloudEvents_", "ce-")


def cloud_event_of(
    *, id: str, body: bytes, headers: Mapping[str, str], content_type: str, origin: str, subject: str
) -> Received | Poison:
    """The event in a message, identified by its own source and id; `id`, `origin` and `subject` are the message's own."""
    named = {_plain(name): quote(value, safe="") for name, value in headers.items()}
    fields = {name: value for name, value in named.items() if name.startswith("ce-")}
    try:
        message = read_message(Headers({**fields, "content-type": content_type}), body)
    except (InvalidEvent, UnsupportedMedia) as error:
        return Poison(id=id, origin=origin, reason=f"no CloudEvent: {error}", body=body, headers=headers)
    if len(message.events) != 1:
        reason = f"a batch of {len(message.events)} CloudEvents; send one per message"
        return Poison(id=id, origin=origin, reason=reason, body=body, headers=headers)
    [event] = message.events
    return Received(
        id=event.id,
        origin=event.source,
        type=event.type,
        subject=event.subject or subject,
        time=event.time,
        payload=Payload(data=event.data, error=event.data_error),
        body=event.body,
        headers=headers,
    )


def _plain(name: str) -> str:
    """An attribute's header as HTTP spells it; other headers unchanged."""
    prefix = next((prefix for prefix in PREFIXES if name.startswith(prefix)), "")
    return f"ce-{name.removeprefix(prefix)}" if prefix and prefix != "ce-" else name
