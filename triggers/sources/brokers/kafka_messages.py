from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from triggers.sources.brokers.cloud_event import cloud_event_of
from triggers.sources.brokers.debezium import Skip, change_of
from triggers.sources.brokers.kafka_settings import KafkaSettings
from triggers.sources.brokers.message import event_of
from triggers.sources.http.headers import as_text
from triggers.sources.runner import Poison, Received


def reading(settings: KafkaSettings) -> Callable[[Any], Received | Poison | None]:
    """The function that makes an event from a message."""

    def read(raw: Any) -> Received | Poison | None:
        headers = {name: as_text(value or b"") for name, value in raw.headers() or ()}
        key, body = raw.key() or b"", raw.value() or b""
        id, origin, subject = _identity(raw), f"kafka:{raw.topic()}", as_text(key)
        match settings.format:
            case "cloudevents":
                content_type = _content_type(headers)
                return cloud_event_of(
                    id=id, body=body, headers=headers, content_type=content_type, origin=origin, subject=subject
                )
            case "debezium":
                change = change_of(
                    id=id, key=key, body=body, headers=headers, origin=origin, snapshots=settings.snapshots
                )
                return None if isinstance(change, Skip) else change
        return event_of(settings, id=id, body=body, headers=headers, origin=origin, subject=subject, time=_time_of(raw))

    return read


def _identity(raw: Any) -> str:
    """Topic, partition and offset; with the time of the message, because a topic that is deleted and created again gives its
    offsets a second time."""
    kind, milliseconds = raw.timestamp()
    return f"{raw.topic()}/{raw.partition()}/{raw.offset()}" + (f"@{milliseconds}" if kind else "")


def _time_of(raw: Any) -> datetime | None:
    kind, milliseconds = raw.timestamp()
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC) if kind else None
    except (ValueError, OverflowError, OSError):
        return None


def _content_type(headers: Mapping[str, str]) -> str:
    return next((value for name, value in headers.items() if name.lower() == "content-type"), "")
