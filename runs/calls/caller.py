"""The loop of `manage.py caller`: makes the requests to models that waiting runs have left, many at once on one event loop.

All work with the database is done one after the other in one thread. A caller that cannot reach the database goes on with its requests;
what they came to is recorded if it still owns them then.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import structlog
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connection

from agents.exceptions import Permanent, describe
from agents.guards.storable import storable
from agents.journal.steps import too_large
from runs.calls import rows
from runs.calls.bell import Bell
from runs.calls.payer import CallPayer
from runs.calls.rows import Call, Outcome
from runs.db.errors import ALIKE, DATABASE_ERRORS, is_gone, is_own, log_failure
from runs.db.listen import set_timeouts
from runs.db.schema_check import require_migrations
from runs.failpoints import failpoint
from runs.models import Run, Worker
from runs.processes import lease
from runs.processes.lease import Presence, pulse_of

if TYPE_CHECKING:
    from agents.llm.requests.left import End, Requests  # pydantic-ai is loaded for the first request

log = structlog.get_logger(__name__)

RECONNECT = 1.0  # seconds
SOON = 0.1  # a NOTIFY within the throttle of another is not sent, so a caller that found something looks again
WHILE_BUSY = 1.0
TOGETHER = 0.05  # while it has requests: a look for each would cost as much as the request
AT_ONCE = 100  # requests that are taken, or recorded, in one transaction
T = TypeVar("T")


async def in_database_thread(act: Callable[..., T], *arguments: Any) -> T:
    return await sync_to_async(act, thread_sensitive=True)(*arguments)


def _disconnect() -> None:
    connection.close()  # that of the thread which calls this


@dataclass(frozen=True, kw_only=True)
class Ended:
    call: Call
    end: "End"
    took: float


# Of run, claim, key of the step, output, usage: `record_late_answer` of `runs.durable`, which stands above.
# False: not now.
RecordLate = Callable[[UUID, UUID, str, str, Mapping[str, Any]], bool]


class Caller:
    def __init__(self, record_late: RecordLate) -> None:
        self.record_late = record_late
        self.presence = Presence(Worker.Kind.CALLER)
        self.pulse = pulse_of(Worker.Kind.CALLER)
        self.me: UUID | None = None
        self.bell = Bell()
        self.requests: Requests | None = None
        self.loading: asyncio.Task[Requests] | None = None
        self.tasks: dict[int, asyncio.Task[None]] = {}  # by wait
        self.ended: list[Ended] = []
        self.record_at = 0.0  # after the database refused to record some
        self.is_stopping = False
        self.tidy_at = 0.0
        self.look_at_wanted = 0.0
        self._connected_at = 0.0

    async def run(self) -> None:
        """Run until `stop`. If the database is lost, wait for it."""
        while not self.is_stopping:
            self.pulse.beat()
            try:
                await in_database_thread(self._connect)
                self.bell.listen()
                log.info("caller.ready")
                while not self.is_stopping:
                    self.pulse.beat()
                    pause = await self.look()
                    together = TOGETHER if self.tasks else 0.0
                    await self.bell.wait(pause, together=together, needs_notify=not self.is_stopping)
            except DATABASE_ERRORS as error:
                log_failure(log, "caller", error)
                self.bell.close()
                await in_database_thread(_disconnect)
                await asyncio.sleep(RECONNECT)
        await self._drain()

    def stop(self) -> None:
        self.is_stopping = True
        self.bell.ring()

    async def look(self) -> float:
        """Renew, record, drop what is no longer wanted, take what is free. Returns the seconds until the next look."""
        await self._renew()
        await self._record()
        me = self.me
        assert me is not None  # noqa: S101  (it has renewed)
        await self._drop_unwanted(me)
        now = time.monotonic()
        has_some, due = await in_database_thread(rows.first_due)
        if has_some and now >= self.tidy_at and now - self._connected_at > settings.WAKEFUL_LEASE.total_seconds():
            self.tidy_at = now + settings.WAKEFUL_SAFETY_LOOK.total_seconds()
            await in_database_thread(rows.untake, me, list(self.tasks))
            await in_database_thread(rows.tidy)
            return SOON
        room = settings.WAKEFUL_MODEL_CALLS - len(self.tasks)
        if due is not None and due <= 0 and room > 0:
            await in_database_thread(self.presence.own)
            self.requests = self.requests or self._loaded()
            if self.requests is None:
                return WHILE_BUSY
            taken = await in_database_thread(rows.take, me, min(room, AT_ONCE)) if self.presence.row == me else []
            for call in taken:
                self.tasks[call.wait_id] = asyncio.create_task(self._make(call, me))
            return SOON if taken else WHILE_BUSY  # those that are due are of stopped agents
        pause = WHILE_BUSY if self.tasks else min(settings.WAKEFUL_SAFETY_LOOK, self.presence.every).total_seconds()
        return pause if due is None or room <= 0 else min(due, pause)

    # Requests

    def _loaded(self) -> "Requests | None":
        """What makes requests, once it is loaded: that takes a thread longer than a lease on a busy machine, and the lease is renewed
        meanwhile."""
        if self.loading is None:
            self.loading = asyncio.create_task(asyncio.to_thread(requests))
            self.loading.add_done_callback(lambda _: self.bell.ring())
        return self.loading.result() if self.loading.done() else None

    async def _make(self, call: Call, me: UUID) -> None:
        began = time.monotonic()
        from agents.llm.requests.left import HandedBack

        assert self.requests is not None  # noqa: S101  (it takes nothing before)
        try:
            end = await self.requests.make(
                json.loads(call.content), CallPayer(call, me), tries=call.tries, is_once=call.is_once
            )
        except Exception as error:
            log.exception("call.failed", run=str(call.run_id), request=call.key)
            end = HandedBack(reason=describe(error))
        failpoint("after_model_answer")
        self.ended.append(Ended(call=call, end=end, took=time.monotonic() - began))
        self.bell.ring()

    async def _record(self) -> None:
        """Record what requests came to, all of them together; if that fails, at the next look again. What the database refuses is
        kept, and tried again after a pause: it stops nothing else, and what is paid is not lost by a fault of the database."""
        if time.monotonic() < self.record_at and not self.is_stopping:
            return
        while (ended := self.ended[:AT_ONCE]) and self.me is not None:
            recorded, kept, refused = await in_database_thread(record, self.me, ended)
            if refused:
                self.record_at = time.monotonic() + WHILE_BUSY
            late = [one for one in ended if one.call.wait_id not in recorded | kept]
            kept |= {one.call.wait_id for one in await self._record_late(late)}
            for one in ended:
                if one.call.wait_id not in kept:
                    self.tasks.pop(one.call.wait_id, None)
            locked = [one for one in ended if one.call.wait_id in kept]
            # Behind those that were not tried yet.
            self.ended[:] = [*self.ended[len(ended) :], *locked]
            if locked:
                return

    async def _record_late(self, late: Sequence[Ended]) -> Sequence[Ended]:
        """Returns those that wait for a lock: once one does, none of the others is tried, for the lease must be renewed."""
        refused: list[Ended] = []
        for number, one in enumerate(late):
            try:
                is_done = await in_database_thread(record_late, one, self.record_late)
            except DATABASE_ERRORS as error:
                if is_gone(error):
                    raise
                if not is_own(error):
                    log.exception("call.late_answer_not_recorded", run=str(one.call.run_id), request=one.call.key)
                    refused.append(one)
                    self.record_at = time.monotonic() + WHILE_BUSY
                    continue
                # It is paid and lost: a person decides about its run. The others are recorded.
                log.exception("call.late_answer_refused", run=str(one.call.run_id), request=one.call.key)
                is_done = True
            if not is_done:
                return [*refused, *late[number:]]
            log.warning("call.late", run=str(one.call.run_id), request=one.call.key, end=type(one.end).__name__)
        return refused

    async def _drop_unwanted(self, me: UUID) -> None:
        """Cancel requests whose runs were cancelled, or whose agents were stopped."""
        now = time.monotonic()
        if not self.tasks or (now < self.look_at_wanted and not self.bell.has_unwanted):
            return
        self.look_at_wanted, self.bell.has_unwanted = now + WHILE_BUSY, False
        wanted = await in_database_thread(rows.wanted, me)
        has_ended = {one.call.wait_id for one in self.ended}
        cut = {
            wait_id for wait_id, task in self.tasks.items() if task.done()
        }  # and not let go, for want of the database
        dropped = sorted((self.tasks.keys() - wanted | cut) - has_ended)
        for wait_id in dropped:
            self.tasks[wait_id].cancel()
        if dropped:
            await in_database_thread(rows.let_go, me, dropped)
            for wait_id in dropped:
                del self.tasks[wait_id]
            log.info("call.dropped", requests=len(dropped))

    # The process

    def _connect(self) -> None:
        require_migrations()
        set_timeouts()
        self.bell.open()
        self._connected_at = time.monotonic()
        self.tidy_at = 0.0

    async def _renew(self) -> None:
        self.presence.owns = bool(self.tasks)
        await in_database_thread(self.presence.renew)
        if self.presence.row != self.me:
            locked = await self._record_late(self.ended)
            self._abandon()  # another process has them
            self.ended = [*locked]
            self.me = self.presence.row

    def _abandon(self) -> None:
        if self.tasks:
            log.warning("caller.lost", requests=len(self.tasks))
        for task in self.tasks.values():
            task.cancel()
        self.tasks.clear()
        self.ended.clear()

    async def _drain(self) -> None:
        """Let requests end for a while, record them, and leave the others to another process."""
        with suppress(*DATABASE_ERRORS):
            if self.me is not None:
                await in_database_thread(lease.drain, self.me)
            until = time.monotonic() + settings.WAKEFUL_SHUTDOWN_GRACE.total_seconds()
            while len(self.tasks) > len(self.ended) and time.monotonic() < until:
                self.pulse.beat()
                await self.bell.wait(WHILE_BUSY, needs_notify=False)
                await self._renew()
                await self._record()
                if self.me is not None:
                    await self._drop_unwanted(self.me)
            await self._record()
            if self.me is not None:
                await in_database_thread(rows.let_go, self.me, list(self.tasks))
        self._abandon()
        self.bell.close()
        with suppress(*DATABASE_ERRORS):
            await in_database_thread(self.presence.close)
        if self.requests is not None:
            await self.requests.close()
        log.info("caller.stopped")


def requests() -> "Requests":
    from agents.llm.requests.left import Requests

    return Requests()


def record(me: UUID, ended: Sequence[Ended]) -> tuple[set[int], set[int], set[int]]:
    """Record answers, postpone and hand back. Returns the waits for which that is done, those for which it is to be tried again, and
    those of them that the database refuses: they stop no others."""
    try:
        return *_record(me, ended), set()
    except DATABASE_ERRORS as error:
        if is_gone(error):
            raise
        if len(ended) == 1:
            log.exception("call.not_recorded", run=str(ended[0].call.run_id), request=ended[0].call.key)
            return set(), {ended[0].call.wait_id}, {ended[0].call.wait_id}
    done, kept, refused = set[int](), set[int](), set[int]()
    for one in ended:
        if len(refused) >= ALIKE and not done:  # nothing but the database seems to be at fault
            kept.add(one.call.wait_id)
            continue
        its = record(me, [one])
        done, kept, refused = done | its[0], kept | its[1], refused | its[2]
    return done, kept, refused


def _record(me: UUID, ended: Sequence[Ended]) -> tuple[set[int], set[int]]:
    from agents.llm.requests.left import Answered, HandedBack, Postponed

    answers = [_outcome(one, one.end) for one in ended if isinstance(one.end, Answered)]
    back = [one for one in ended if isinstance(one.end, HandedBack)]
    done = _answer(me, answers) if answers else set()
    if back:
        unmade = [one.call.wait_id for one in back if isinstance(one.end, HandedBack) and one.end.is_unmade]
        done |= rows.hand_back(me, [one.call.wait_id for one in back], unmade)
    for one in ended:
        if isinstance(one.end, Postponed) and rows.postpone(me, one.call.wait_id, one.end.seconds, one.end.reason):
            done.add(one.call.wait_id)
    for one in back:
        log.warning("call.handed_back", run=str(one.call.run_id), request=one.call.key, reason=_reason(one.end))
    return done, rows.owned(me, [one.call.wait_id for one in ended if one.call.wait_id not in done])


def record_late(ended: Ended, record: RecordLate) -> bool:
    """Record the answer to a request that may be made only once, although its run is parked over it by now: it goes on. False: its
    run is locked now."""
    from agents.llm.requests.left import Answered

    if ended.call.is_once and isinstance(ended.end, Answered):
        call, outcome = ended.call, _outcome(ended, ended.end)
        if outcome.output is not None:
            with suppress(Run.DoesNotExist):
                return record(call.run_id, call.id, call.key, outcome.output, outcome.usage)
    return True


def _answer(me: UUID, answers: Sequence[Outcome]) -> set[int]:
    """One that the database refuses does not stop the others: it is paid and lost."""
    try:
        return rows.answer(me, answers)
    except DATABASE_ERRORS as error:
        if not is_own(error):
            raise
        if len(answers) > 1:
            return set[int]().union(*(_answer(me, [one]) for one in answers))
        lost = replace(answers[0], output=None, usage={}, error=describe(error)[:1000], error_kind=type(error).__name__)
        return rows.answer(me, [lost])


def _reason(end: Any) -> str:
    return str(getattr(end, "reason", ""))[:300]


def _outcome(ended: Ended, answer: Any) -> Outcome:
    """The answer as its step. One that cannot be stored is paid and lost."""
    given: dict[str, Any] = {"wait_id": ended.call.wait_id, "took": ended.took, "usage": answer.usage}
    try:
        what = f"the output of step {ended.call.key!r}"
        text = json.dumps(storable(answer.output, what), ensure_ascii=False)
        if (error := too_large(ended.call.key, text, settings.WAKEFUL_MAX_OUTPUT, is_paid=True)) is not None:
            raise error
    except Permanent as error:
        return Outcome(error=describe(error).partition(": ")[2], error_kind=type(error).__name__, **given)
    return Outcome(output=text, **given)
