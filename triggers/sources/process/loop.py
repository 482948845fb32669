"""The loop of `manage.py sources`: owns its share of the sources, lets a thread read each of them, and records what they read.

Any number of these processes may run, on any hosts. The loop alone writes to the database. A process that owns nothing, and could
own nothing, rests: it looks when a source is edited or given back, when the lease of an owner ends, and once in some safety looks.
"""

import contextlib
import queue
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import structlog
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connection

from agents.exceptions import as_text
from agents.kernel.backoff import backoff
from runs.db.encryption import decrypt
from runs.db.errors import DATABASE_ERRORS, log_failure
from runs.db.listen import listen, notified, set_timeouts, working_session
from runs.db.poll import readable
from runs.db.schema_check import require_migrations
from runs.db.sql import execute
from runs.models import Worker
from runs.processes.lease import Presence, pulse_of, rest
from triggers.models import Secret
from triggers.sources.backlog import backlog_exceeded
from triggers.sources.continuity import Marks, load
from triggers.sources.kind import Waits
from triggers.sources.process import owners
from triggers.sources.process.owners import Wanted
from triggers.sources.process.reader_thread import Failure, Handover, HandoverAnswer, ReaderThread
from triggers.sources.process.record import Mandate, NotOwned, record
from triggers.sources.runner import Assignment, Runner, SourceError, runners
from triggers.sources.settings import InvalidSettings

log = structlog.get_logger(__name__)

RECONNECT = 1.0  # seconds
LOOK_WHILE_HELD = 1.0
BRIEFLY = 0.1  # seconds
STOPS_WITHIN = 8.0
FIRST_REST, LONGEST_REST = (
    60.0,
    600.0,
)  # seconds until a source that hung is taken again, such as of a frozen file system
RESTS = "It is tried again after a pause that grows to ten minutes; restart the sources process to try it at once."
HUNG_AT_MOST = 10  # threads that never returned; a new process is better then

FAIL = """
UPDATE triggers_reading SET failing_since = coalesce(failing_since, clock_timestamp()), failures = failures + 1,
  error = %(error)s::text, remedy = %(remedy)s::text
WHERE source_id = %(source)s::uuid AND owner_id = %(owner)s::uuid AND epoch = %(epoch)s::bigint
"""
HOLD = """
UPDATE triggers_reading SET held_since = CASE WHEN %(held)s::boolean THEN coalesce(held_since, clock_timestamp()) END
WHERE source_id = %(source)s::uuid AND owner_id = %(owner)s::uuid AND epoch = %(epoch)s::bigint
"""


class TooManyHang(Exception):
    """Threads of this process never returned from their client library: it must be started again."""


class Sources:
    def __init__(self) -> None:
        self.presence = Presence(Worker.Kind.SOURCES)
        self.pulse = pulse_of(Worker.Kind.SOURCES)
        self.me: UUID | None = None
        self.valid_until = 0.0  # monotonic seconds: the end of the lease, by this host's clock
        self.threads: dict[UUID, ReaderThread] = {}
        self.configured: dict[UUID, tuple[Any, ...]] = {}
        self.hints: dict[UUID, datetime | None] = {}  # the last one of each source that its thread was given
        self.inbox: queue.SimpleQueue[Handover | Failure] = queue.SimpleQueue()
        self.look_at = 0.0
        self.hung = 0
        self.hangs = Counter[UUID]()  # in a row
        self.rests_until: dict[UUID, float] = {}  # monotonic seconds

    def run(self) -> None:
        """Run until KeyboardInterrupt. If the database is lost, wait for it."""
        try:
            self.serve_for_ever()
        except KeyboardInterrupt:
            connection.close()  # a statement may be unfinished
            with contextlib.suppress(*DATABASE_ERRORS):
                self.stop()
            log.info("sources.stopped")

    def serve_for_ever(self) -> None:
        while True:
            self.pulse.beat()
            try:
                require_migrations()
                set_timeouts()
                listen(owners.CHANNEL)
                self.look_at = 0.0
                log.info("sources.reading")
                self.serve()
            except DATABASE_ERRORS as error:
                log_failure(log, "sources", error)
                connection.close()
                time.sleep(RECONNECT)

    def serve(self) -> None:
        while True:
            self.pulse.beat()
            if time.monotonic() >= self.look_at:
                self.look()
            self.wait(max(self.look_at - time.monotonic(), 0))

    def wait(self, seconds: float) -> None:
        """For what the threads have read; without threads, for a NOTIFY."""
        with contextlib.suppress(queue.Empty):
            self.take_in(self.inbox.get(timeout=seconds) if self.threads else self.inbox.get_nowait())
            return
        if not self.threads and (notified() or (readable(working_session(), seconds) and notified())):
            self.look_at = 0.0

    def stop(self) -> None:
        """Let the threads end, then give the sources back: other processes read on at once."""
        for thread in self.threads.values():
            thread.end()
        deadline = time.monotonic() + STOPS_WITHIN
        for thread in self.threads.values():
            thread.join(max(deadline - time.monotonic(), 0))
        if self.me:
            owners.give_back(self.me, list(self.threads))
        self.presence.close()

    # Owning

    def look(self) -> None:
        """Renew the lease, and read the sources that are this process's share."""
        known = runners()
        found = {source.id: source for source in self.renew(list(known))}
        me = self.require_row()
        self.bury(me)
        self.end_feeds(found)
        strays = [source.id for source in found.values() if source.is_mine and source.id not in self.threads]
        owners.give_back(me, strays)
        self.adopt(me, found, known)
        for id, thread in self.threads.items():
            self.let_read(id)
            if id in found and found[id].hinted_at != self.hints.get(id):
                self.hints[id] = found[id].hinted_at
                thread.hurry()
        self.look_at = time.monotonic() + self.until_next(found.values())

    def renew(self, kinds: Sequence[str]) -> list[Wanted]:
        """Renew the lease when it is time; the sources that there are."""
        renewed_at = self.presence.renewed_at
        wanted = owners.wanted(self.me, kinds, self.presence.ask)
        if self.presence.row != self.me:  # another process took the sources over, or this is the first look
            for thread in self.threads.values():
                thread.end()
            self.threads.clear()
            self.me = self.presence.row
            wanted = owners.wanted(self.me, kinds)
        if self.presence.renewed_at != renewed_at:
            self.note_lease()
        return wanted

    def note_lease(self) -> None:
        self.valid_until = self.presence.renewed_at + settings.WAKEFUL_LEASE.total_seconds()

    def until_next(self, found: Collection[Wanted]) -> float:
        """Seconds until the next look. What is free, also after a pause, keeps the process awake."""
        self.presence.owns = bool(self.threads) or any(source.owned_for is None or source.is_mine for source in found)
        if self.presence.rests and self.presence.has_rested:
            # An owner that lives has renewed its lease by then.
            return max(min([rest().total_seconds(), *(source.owned_for or 0.0 for source in found)]), BRIEFLY)
        is_held = any(thread.is_held for thread in self.threads.values())
        return LOOK_WHILE_HELD if is_held else float(settings.WAKEFUL_LEASE_RENEW.total_seconds())

    def require_row(self) -> UUID:
        if self.me is None:
            raise RuntimeError("the process has no row")
        return self.me

    def bury(self, me: UUID) -> None:
        """Give back the sources of threads that have ended, and of those that hang."""
        over = []
        for id, thread in list(self.threads.items()):
            if thread.hangs:
                self.hung += 1
                self.hangs[id] += 1
                self.rests_until[id] = time.monotonic() + backoff(FIRST_REST, LONGEST_REST, self.hangs[id])
                self.fail(
                    Failure(thread=thread, error="The client library has not answered for a minute.", remedy=RESTS)
                )
                log.error("source.hangs", source=thread.mandate.slug)
            elif thread.is_alive():
                continue
            thread.end()
            del self.threads[id]
            over.append(id)
        owners.give_back(me, over)
        if self.hung > HUNG_AT_MOST:
            raise TooManyHang

    def end_feeds(self, found: Mapping[UUID, Wanted]) -> None:
        """End threads whose sources are disabled, changed, owned by another process, or more than a fair share."""
        for id, thread in list(self.threads.items()):
            source = found.get(id)
            if source is None:
                thread.end(is_over=True)
            elif source.is_mine and source.configured != self.configured[id]:
                thread.end()
            elif not source.is_mine or source.epoch != thread.mandate.epoch:
                thread.end()
                del self.threads[id]
        live = [thread for thread in self.threads.values() if not thread.is_ended]
        for thread in live[self.share(found) :]:
            thread.end()

    def share(self, found: Mapping[UUID, Wanted]) -> int:
        processes = next((source.processes for source in found.values()), 1)
        return owners.fair_share(len(found), processes)

    def adopt(self, me: UUID, found: Mapping[UUID, Wanted], known: Mapping[str, Runner[Any]]) -> None:
        """Take free sources, as many as are missing to a fair share, and start their threads."""
        room = max(self.share(found) - len(self.threads), 0)
        now = time.monotonic()
        free = [
            source.id
            for source in found.values()
            if source.id not in self.threads
            and (source.is_free or source.is_mine)
            and self.rests_until.get(source.id, now) <= now
        ]
        if not free[:room]:
            return
        self.presence.own()
        self.note_lease()
        if self.presence.row != me:
            return  # the next look begins again
        for taken in owners.take(me, free[:room]):
            source = found[taken.source_id]
            mandate = Mandate(source_id=source.id, slug=source.slug, owner=me, epoch=taken.epoch)
            assign = assignments(source, known[source.kind])
            self.threads[source.id] = ReaderThread(
                mandate, known[source.kind], assign, taken.position, load(taken.marks), self.inbox
            )
            self.configured[source.id] = source.configured
            self.hints[source.id] = source.hinted_at
            self.threads[source.id].start()
            log.info("source.taken", source=source.slug, epoch=taken.epoch)

    def let_read(self, id: UUID) -> None:
        thread = self.threads[id]
        is_held = backlog_exceeded(id, Waits.READER)
        if is_held != thread.is_held:
            execute(HOLD, {**thread.mandate.names, "held": is_held})
        thread.may_read(until=self.valid_until, is_held=is_held)

    # Recording

    def take_in(self, item: Handover | Failure) -> None:
        id = item.thread.mandate.source_id
        if self.threads.get(id) is not item.thread:
            item.thread.end()  # it was given up
        elif isinstance(item, Handover) and (item.thread.is_ended or item.is_left):
            # The thread has left without an answer and confirms nothing, so its messages come again: what is not confirmed is not recorded.
            log.info("source.batch_dropped", source=item.thread.mandate.slug)
        elif isinstance(item, Failure):
            self.fail(item)
        else:
            self.record(item)
            if id in self.threads:
                self.let_read(id)

    def record(self, handover: Handover) -> None:
        thread = handover.thread
        try:
            handover.marks = record(thread.mandate, handover.batch, thread.marks)
        except NotOwned:
            log.warning("source.lost", source=thread.mandate.slug, epoch=thread.mandate.epoch)
            del self.threads[thread.mandate.source_id]
            thread.answer(handover, HandoverAnswer.NOT_OWNED)
        except Exception as error:
            # Also any error of a kind's own, such as in `Batch.keep`: one source does not stop the others.
            said = (str(error).strip() or type(error).__name__).splitlines()[0]
            handover.error = f"Its messages cannot be recorded: {said}"
            thread.answer(handover, HandoverAnswer.FAILED)
            if isinstance(error, DATABASE_ERRORS) and not connection.is_usable():
                raise
            log.exception("source.not_recorded", source=thread.mandate.slug)
            self.fail(Failure(thread=thread, error=handover.error, remedy=""))
        else:
            del self.hangs[thread.mandate.source_id]
            thread.answer(handover, HandoverAnswer.RECORDED)

    def fail(self, failure: Failure) -> None:
        # It may quote the bytes of a server, which PostgreSQL cannot store.
        error, remedy = as_text(failure.error), as_text(failure.remedy)
        execute(FAIL, {**failure.thread.mandate.names, "error": error, "remedy": remedy})


def assignments(source: Wanted, runner: Runner[Any]) -> Callable[[Any, Marks], Assignment[Any]]:
    """Make the assignment of a source from its settings and its newest live secret, as they are now."""
    sealed = Secret.objects.filter(pk=source.secret_id or 0).values_list("ciphertext", flat=True).first()

    def assign(position: Any, marks: Marks) -> Assignment[Any]:
        try:
            cleaned = runner.clean_settings(source.settings)
            secret = decrypt(sealed).decode() if sealed is not None else ""
        except InvalidSettings as error:
            raise SourceError(
                f"Its settings are invalid: {error}", remedy="Open the source and correct them."
            ) from None
        except (InvalidToken, ImproperlyConfigured):
            raise SourceError(
                "No key of WAKEFUL_ENCRYPTION_KEYS decrypts its secret.",
                remedy="Add the key that encrypted it to WAKEFUL_ENCRYPTION_KEYS, or enter the secret again.",
            ) from None
        return Assignment(
            slug=source.slug, settings=cleaned, secret=secret, position=position, source_id=source.id, marks=marks
        )

    return assign
