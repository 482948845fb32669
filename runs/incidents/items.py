"""Items of checklists that could not be looked at, from the messages that runs leave in the transaction of the look."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from django.conf import settings

from runs.incidents.note import Failed, Succeeded, Thing, note
from runs.models import Incident

LOOKED_AT = "items.looked_at"  # the outbox topic: looks that failed, and those that follow a failure
NAME_LENGTH = 200


def items_looked_at(payloads: Sequence[Mapping[str, Any]]) -> None:
    note([one for payload in payloads for one in _ended(payload)])


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
