"""Deliveries that come together share a transaction: the event loop verifies them, and a few asynchronous sessions insert their events,
all that have come meanwhile with one statement.

It answers only what it has recorded. Whatever else comes of a delivery, the way of one alone finds out (`config.web.shortcut`): a
refusal, a duplicate, a source that this process does not know yet or that has changed, an error of the database.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from uuid import UUID

import psycopg
import structlog
from granian.rsgi import Scope

from config.web.shortcut import Answer, Shortcut, answer_to
from runs.db import nudge
from runs.db.together import Session, Together
from runs.failpoints import failpoint
from triggers.accept import SIZES, Accepted, Verified, insert_of
from triggers.sources import backlog
from triggers.sources.webhooks.door import Ready, Taken, make_ready
from triggers.sources.webhooks.endpoint import note_match, owes_note

log = structlog.get_logger(__name__)

# Bytes of a body that the event loop verifies; a larger one would hold up all others.
LARGEST = 2**16
WAITING = 1024  # deliveries; any more wait for a thread, of which so many may wait as without this


class Ingest:
    """`in_thread`: calls a function in a thread that has a database connection. Used only in the event loop."""

    def __init__(self, shortcut: Shortcut, in_thread: Callable[..., Awaitable[Any]], *, sessions: int) -> None:
        self._shortcut = shortcut
        self._in_thread = in_thread
        self._together = Together(_insert, most=SIZES[-1], sessions=sessions, after=_nudge)
        self._chores: dict[object, asyncio.Future[Any]] = {}

    async def take(self, scope: Scope, body: bytes, id: UUID) -> Answer | None:
        """The answer to a delivery that is recorded now. None: it is not, or it is not known whether it is. `id`: of its arrival."""
        if len(body) > LARGEST or not self._together.is_open or self._together.waiting >= WAITING:
            return None
        if (plain := self._shortcut.plain(scope, body, id)) is None:
            return None
        if backlog.seconds_since_look() >= backlog.LOOK_EVERY:
            self._do("look", backlog.look)
        if (ready := make_ready(plain.slug, plain.arrival)) is None:
            return None
        event = Verified(event=ready.event, state=ready.endpoint.state)
        failpoint("before_accept")
        if not await self._together.write(event):
            return None
        failpoint("after_accept")
        self._note(ready)
        accepted = Accepted(event_id=event.id, duplicate=False)
        return answer_to(Taken(events=(accepted,), reply=ready.endpoint.scheme.accepted), plain.headers)

    def _note(self, ready: Ready) -> None:
        if ready.secret is not None and owes_note(ready.secret):
            self._do(ready.secret.id, note_match, ready.endpoint, ready.secret)

    def _do(self, name: object, work: Callable[..., None], *arguments: Any) -> None:
        """Do it beside the deliveries, unless it is being done."""
        if name not in self._chores:
            chore = self._chores[name] = asyncio.ensure_future(self._in_thread(work, *arguments))
            chore.add_done_callback(lambda chore: self._end(name, chore))

    def _end(self, name: object, chore: asyncio.Future[Any]) -> None:
        del self._chores[name]
        if not chore.cancelled() and (error := chore.exception()):
            log.warning("ingest.chore_failed", chore=str(name), error=str(error))  # the way of one alone meets the same


async def _insert(session: Session, events: Sequence[Verified]) -> list[bool]:
    statement, parameters = insert_of(events)
    cursor = psycopg.AsyncRawCursor(session)  # the driver would parse the statement at each execution
    await cursor.execute(statement, parameters, prepare=True)
    recorded = {id for (id,) in await cursor.fetchall()}
    return [event.id in recorded for event in events]


async def _nudge(session: Session) -> None:
    if nudge.take_turn():
        try:
            await session.execute(nudge.NOTIFY, [nudge.CHANNEL, nudge.AT_ONCE])
        except psycopg.Error:
            nudge.note_failed()
