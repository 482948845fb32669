"""Rows for tests, with sane defaults."""

from typing import Any

from django.utils import timezone
from uuid_utils.compat import uuid7

from runs.models import NIL
from triggers.accept import Incoming, accept, builtin_source
from triggers.models import Decision, Event, Trigger


def make_trigger(slug: str = "greeter", **fields: Any) -> Trigger:
    return Trigger.objects.create(slug=slug, **{"agent": slug, "types": ["visitor.*"], **fields})


def make_paused_trigger(slug: str = "greeter", **fields: Any) -> Trigger:
    return make_trigger(slug, paused_at=timezone.now(), paused_reason="broken", **fields)


def make_event(*, type: str = "visitor.came", **fields: Any) -> Event:
    """An event as the command line would record it."""
    values = {"source_id": builtin_source("cli"), "ce_source": "cli:test", "ce_id": str(uuid7()), **fields}
    [accepted] = accept([Incoming(type=type, **values)])
    return Event.objects.get(pk=accepted.event_id)


def hold(event: Event, trigger: Trigger, *, replay_id: Any = NIL) -> Decision:
    """The decision the dispatcher takes on an event of a paused trigger."""
    return Decision.objects.create(event=event, trigger=trigger, replay_id=replay_id, outcome="held")
