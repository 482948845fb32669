"""Where an event is answered: its kind of source derives the place from what was recorded."""

import re
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any
from uuid import UUID

from agents.exceptions import NoReplyPlace
from agents.kernel.reply_place import ReplyPlace
from triggers.models import Event
from triggers.sources.kind import Kind, kinds
from triggers.sources.replies import Answer, Unanswerable
from triggers.sources.settings import InvalidSettings

OTHERWISE = "Reach people by run.notify(…), or a system by run.emit(…) and a subscription"
SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@-]{0,99}")


def reply_place(event_id: UUID) -> ReplyPlace:
    """Raises NoReplyPlace, which names the way out."""
    return _place(event_id, lambda kind, event, settings: kind.answer_to(event, settings))


def request_place(event_id: UUID) -> ReplyPlace:
    """Where requests for a decision are posted; `to` names the source, whose deliveries alone decide there. Raises NoReplyPlace."""

    def find(kind: Kind[Any], event: Event, settings: Any) -> Answer:
        found = kind.asks_at(event, settings)
        return replace(found, to={**found.to, "source": str(event.source_id)})

    return _place(event_id, find)


def _place(event_id: UUID, find: Callable[[Kind[Any], Event, Any], Answer]) -> ReplyPlace:
    event = Event.objects.select_related("source").filter(pk=event_id).first()
    if event is None:
        raise NoReplyPlace(f"run.reply: event {event_id} is gone. {OTHERWISE}")
    source = event.source
    kind = kinds().get(source.kind)
    try:
        if kind is None:
            raise Unanswerable(f"events of {source.slug!r} (kind {source.kind}) have no place to answer. {OTHERWISE}")
        if event.payload_removed_at is not None:
            raise Unanswerable(f"the payload of event {event_id} is removed, and with it the place. {OTHERWISE}")
        found = find(kind, event, kind.clean_settings(source.settings))
    except (Unanswerable, InvalidSettings) as error:
        raise NoReplyPlace(f"run.reply: source {source.slug!r}: {error}") from None
    return ReplyPlace(
        kind=found.kind,
        to=found.to,
        name=found.name[:200],
        thread=_session(f"{source.slug}:{found.thread}"),
        asks=found.asks,
    )


def _session(text: str) -> str:
    """The text as the name of a session, or its hash if it is none."""
    return text if SESSION.fullmatch(text) else f"thread:{sha256(text.encode()).hexdigest()[:40]}"
