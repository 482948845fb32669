"""A message with a change event of Debezium."""

from collections.abc import Mapping
from typing import Final

from triggers.sources.databases.changes import SNAPSHOT, subject_of
from triggers.sources.databases.debezium import Envelope, pk_in, unwrapped
from triggers.sources.http.payload import Payload, read_payload
from triggers.sources.runner import Poison, Received

NO_ENVELOPE = "no change event of Debezium: a JSON object with “op” is expected"


class Skip:
    """A message that is no event by the settings."""


SKIP: Final = Skip()


def change_of(
    *, id: str, key: bytes, body: bytes, headers: Mapping[str, str], origin: str, snapshots: bool
) -> Received | Poison | Skip:
    """The change in a message. A tombstone is none: the deletion before it is."""
    if not body:
        return SKIP
    payload = read_payload(body)
    envelope = Envelope.read(payload.data)
    if envelope is None:
        reason = payload.error or NO_ENVELOPE
        return Poison(id=id, origin=origin, reason=reason, body=body, headers=headers)
    if envelope.operation == SNAPSHOT and not snapshots:
        return SKIP
    name, pk = envelope.name(origin.removeprefix("kafka:")), _pk(key)
    return Received(
        id=id,
        origin=origin,
        type=f"db.{name}.{envelope.operation}",
        subject=subject_of(name, pk),
        time=envelope.time,
        payload=Payload(data=envelope.data(pk)),
        body=body,
        headers=headers,
    )


def _pk(key: bytes) -> object:
    found = read_payload(key) if key else Payload()
    return key.decode(errors="replace") if found.error else pk_in(unwrapped(found.data))
