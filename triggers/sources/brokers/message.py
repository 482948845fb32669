"""A message of a broker as an event: the settings that name it, shared by all brokers."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from triggers.sources.http.payload import read_payload
from triggers.sources.runner import Received
from triggers.sources.settings import json_path, setting
from triggers.sources.webhooks.naming import LONGEST_NAME, event_type, is_name, value_at

UNNAMED_TYPE = "message.received"
UNREACHABLE = (
    "Check that the broker runs, that the source's settings have its address and port, with TLS or without it as the broker has it, "
    "and that no firewall is between it and the sources process."
)


def type_name(value: str) -> str:
    return "" if not value or is_name(value) else f"must be at most {LONGEST_NAME} printable characters"


def required(value: str) -> str:
    return "" if value.strip() else "is required"


@dataclass(frozen=True, kw_only=True)
class MessageSettings:
    """Where a message holds the type, the subject and the id of its event."""

    type_path: str = setting(
        "", "Type in the body", "Path of the event's type in the JSON body, such as event.type.", check=json_path
    )
    type_header: str = setting("", "Type header", "Header with the event's type, used if the body has none.")
    type: str = setting("", "Type", f"Type of messages that name none. Empty: {UNNAMED_TYPE}.", check=type_name)
    subject_path: str = setting(
        "",
        "Subject in the body",
        "Path of the event's subject in the JSON body, such as order.id. A trigger with the key event.subject then handles "
        "the events of one subject in order. Without it, the message's own key or group is the subject.",
        check=json_path,
    )
    id_path: str = setting(
        "",
        "Id in the body",
        "Path of the event's id in the JSON body. Set it if the sender may send the same event as two messages; otherwise the "
        "message's own id identifies it.",
        check=json_path,
    )


def event_of(
    settings: MessageSettings,
    *,
    id: str,
    body: bytes,
    headers: Mapping[str, str],
    origin: str = "",
    subject: str = "",
    time: datetime | None = None,
) -> Received:
    """The event in a message; `id` and `subject` are the message's own."""
    payload = read_payload(body)
    named = value_at(payload.data, settings.type_path) or headers.get(settings.type_header)
    return Received(
        id=value_at(payload.data, settings.id_path) or id,
        type=event_type(named) or settings.type or UNNAMED_TYPE,
        origin=origin,
        subject=value_at(payload.data, settings.subject_path) or subject,
        time=time,
        payload=payload,
        body=body,
        headers=headers,
    )
