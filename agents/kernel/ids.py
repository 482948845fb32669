"""Computed ids: the same run cannot be created twice. They are ordered by time, because random primary keys were the
largest write cost measured."""

from datetime import datetime
from hashlib import sha256
from uuid import UUID, uuid5

TIME_PREFIX = 6  # bytes: the Unix milliseconds a UUIDv7 starts with


def run_id(trigger_id: UUID, event_id: UUID, replay_id: UUID) -> UUID:
    """The event id's time prefix and a hash of trigger, event and replay, as a UUIDv8 (RFC 9562 §5.8)."""
    digest = sha256(trigger_id.bytes + event_id.bytes + replay_id.bytes).digest()
    value = int.from_bytes(event_id.bytes[:TIME_PREFIX] + digest[: 16 - TIME_PREFIX])
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def first_id_at(instant: datetime) -> UUID:
    """The lowest id that an event accepted in that millisecond, or one of its runs, can have. No id is of a time before 1970."""
    return UUID(int=max(int(instant.timestamp() * 1000), 0) << 80)


def ids_beside(event_id: UUID) -> tuple[UUID, UUID]:
    """The lowest and the highest id with the time prefix of this one."""
    prefix, rest = event_id.bytes[:TIME_PREFIX], 16 - TIME_PREFIX
    return UUID(bytes=prefix + bytes(rest)), UUID(bytes=prefix + b"\xff" * rest)


def child_id(parent_id: UUID, key: str) -> UUID:
    """The id of the run that a run spawns under a key."""
    return run_id(parent_id, parent_id, uuid5(parent_id, key))
