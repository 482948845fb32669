"""Run ids: deterministic, so that dispatching twice makes one run, and time-ordered, because random primary keys
were the largest write cost measured."""

from hashlib import sha256
from typing import TYPE_CHECKING
from uuid import UUID

if TYPE_CHECKING:
    from django.db.models import QuerySet

    from runs.models import Run

TIME_PREFIX = 6  # bytes: the Unix milliseconds a UUIDv7 starts with


def run_id(trigger_id: UUID, event_id: UUID, replay_id: UUID) -> UUID:
    """The event id's time prefix and a hash of what the run is for, as a UUIDv8 (RFC 9562 §5.8)."""
    digest = sha256(trigger_id.bytes + event_id.bytes + replay_id.bytes).digest()
    value = int.from_bytes(event_id.bytes[:TIME_PREFIX] + digest[: 16 - TIME_PREFIX])
    value = value & ~(0xF << 76) | 0x8 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    return UUID(int=value)


def runs_of_event(event_id: UUID) -> "QuerySet[Run]":
    """The runs that handle an event: a range of the primary key, since the ids of those it started share its time prefix,
    and those of several events, which have an index of their own."""
    from django.db.models import BooleanField, Q
    from django.db.models.expressions import RawSQL

    from runs.models import Run

    prefix = event_id.bytes[:TIME_PREFIX]
    low, high = UUID(bytes=prefix + bytes(10)), UUID(bytes=prefix + b"\xff" * 10)
    joined = RawSQL("cardinality(event_ids) > 1", (), output_field=BooleanField())
    return Run.objects.filter(Q(id__range=(low, high)) | Q(joined), event_ids__contains=[event_id])
