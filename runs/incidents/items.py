"""Items of checklists that could not be looked at, from the messages that runs leave in the transaction of the look."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.incidents.note import Failed, Succeeded, Thing, note
from runs.models import Incident

LOOKED_AT = "items.looked_at"  # the outbox topic: looks that failed, and those that follow a failure
NAME_LENGTH = 200


def items_looked_at(payloads: Sequence[Mapping[str, Any]]) -> None:
    note([one for payload in payloads for one in _ended(payload)])


def items_removed(ids: Iterable[int], *, by: str) -> None:
    """Close the incidents of items that are deleted, in the caller's transaction."""
    things = [Thing(kind=Incident.Kind.ITEM, subject=str(id), name="") for id in ids]
    note([Succeeded(thing=thing, by=by) for thing in things])


def _ended(payload: Mapping[str, Any]) -> Iterator[Failed | Succeeded]:
    for look in payload["looks"]:
        thing = Thing(
            kind=Incident.Kind.ITEM,
            subject=str(look["item"]),
            name=look["text"][:NAME_LENGTH],
            agent=payload["agent"],
            after=settings.WAKEFUL_INCIDENT_AFTER,
        )
        if look["error"]:
            yield Failed(thing=thing, error=look["error"], run_id=UUID(payload["run"]))
        else:
            yield Succeeded(thing=thing)
