"""The dispatcher's loop: dispatches events, wakes due runs, delivers the outbox, recovers runs, then blocks until a NOTIFY.
Couriers, in threads, talk to the broker and the network, and look for problems.

Any number of dispatchers may run. Dispatch is serial under one advisory lock, and the others stand by; other work uses SKIP
LOCKED.
"""

import contextlib
import time
from collections.abc import Mapping
from functools import partial

import structlog
from django.conf import settings
from django.db import connection

from runs.chores import timers
from runs.chores.chores import Chores
from runs.db import nudge
from runs.db.errors import DATABASE_ERRORS, log_failure
from runs.db.listen import Listener, set_lazy_commits, set_timeouts
from runs.db.schema_check import require_migrations
from runs.models import Worker
from runs.processes import timeline
from runs.processes.dead_man import Heartbeat
from runs.processes.lease import Presence, pulse_of
from runs.queues.courier import Couriers, further
from runs.queues.stayers import CLAIMED, Stayers
from runs.waits import Woken
from triggers.dispatch import failures
from triggers.dispatch.batch import Batch
from triggers.dispatch.failures import has_more_than_units, unless_failed
from triggers.dispatch.follow_up import FollowUp
from triggers.dispatch.late import Late
from triggers.dispatch.leadership import Leadership
from triggers.dispatch.listeners import cases_of_listeners
from triggers.dispatch.looks import DispatchTimers, Looks, Seen, Wide
from triggers.dispatch.pace import Pace
from triggers.dispatch.promise import KEEP_LOOKING, Promise
from triggers.dispatch.rules import Rules
from triggers.dispatch.shards import Shards
from triggers.dispatch.steps import Steps
from triggers.matching.pending import reading_ahead
from triggers.matching.slow_lane import Costly
from triggers.outbound.postman import Postman

log = structlog.get_logger(__name__)

OVERDUE = 1.0  # seconds between two looks while overdue work cannot be done yet
RING_EVERY = 1.0  # seconds, while runs are ready
STANDBY = 1.0
RECONNECT = 1.0
SHARDS_END = 2.0  # seconds in which the shards of a stopping dispatcher end by themselves
BLOCKED = 0.25  # seconds between two looks at switches that are due, while events wait for dispatch


class Dispatcher:
    def __init__(self) -> None:
        self.rules = Rules()
        self.costly = Costly(others=Costly(cases_of_listeners))
        self.stayers = Stayers()
        self.couriers = Couriers(Postman, *further)
        self.failing = self.couriers.failing
        most = settings.WAKEFUL_DISPATCH_SHARDS
        self.shards = Shards(most, self.failing) if most > 1 else None
        beside = partial(self.shards.dispatch, self.rules) if self.shards else None
        self.dispatch = failures.events(self.rules, self.costly, self.stayers, beside)
        self.looks, self.pace, self.steps = Looks(), Pace(), Steps(self.rules, self.failing)
        self.leadership = Leadership()
        self.chores = Chores()
        self.heartbeat = Heartbeat()
        self.presence = Presence(Worker.Kind.DISPATCHER)
        self.pulse = pulse_of(Worker.Kind.DISPATCHER)
        self.listener = Listener([nudge.CHANNEL])
        self.notified = False
        self.is_urgent = False  # and not only by NOTIFYs that can wait
        self.promise, self.follow_up, self.late = Promise(), FollowUp(), Late()
        self.was_ready = False
        self.ring_at = 0.0
        # When runs were first rung for without the courier, which would ring again for those that stay ready.
        self.unheard_since: float | None = None

    def run(self) -> None:
        """Run until KeyboardInterrupt. If the database is lost, wait for it."""
        nudge.stay_awake()
        try:
            self.serve_for_ever()
        except KeyboardInterrupt:
            connection.close()  # a statement may be unfinished
            with contextlib.suppress(*DATABASE_ERRORS):
                self.presence.close()
            self.listener.close()
            if self.shards:
                self.shards.close(SHARDS_END)
            log.info("dispatcher.stopped")

    def serve_for_ever(self) -> None:
        while True:
            self.pulse.beat()
            try:
                self.connect()
                self.serve()
            except DATABASE_ERRORS as error:
                log_failure(log, "dispatcher", error)
                connection.close()
                time.sleep(RECONNECT)

    def connect(self) -> None:
        require_migrations()
        self.listener.open()
        set_timeouts()
        set_lazy_commits()
        self.leadership.begin()
        self.promise, self.follow_up, self.late = Promise(), FollowUp(), Late()
        self.follow_up.hear()  # one that was sent a moment before is lost
        self.steps.reconnected()
        timeline.notice_failover()
        self.presence.renew(self.couriers.troubles)
        self.chores.reconnected()
        log.info("dispatcher.listening")

    def serve(self) -> None:
        while True:
            self.pulse.beat()
            self.chores.begin_pass()
            self.couriers.watch()  # only now, so that none of them finds no dispatcher
            began = time.monotonic()
            batch, wait = self.look()
            self.presence.renew(self.couriers.troubles)  # unless the look has
            self.heartbeat.beat()  # only after a successful look, so that a dispatcher that always fails falls silent
            promised = self.owed(began, batch)
            self.let_go(promised)
            wait = wait if promised is None else min(wait, promised)
            self.chores.end_pass(wait)
            self.wait(wait)

    def owed(self, began: float, batch: Batch) -> float | None:
        """Note which looks are owed, so that nothing waits for the safety look; the seconds until the one that is promised."""
        has_more = batch.again or batch.ready > 0 or batch.dispatched + batch.partly > 1
        self.follow_up.looked(began, has_worked=batch.has_progressed, has_more=has_more)
        return self.promise.after_look(
            has_news=batch.has_progressed or self.is_urgent,
            has_changes=batch.changes > 0,
            leads=self.leadership.is_held,
            stands_by=self.leadership.stands_by,
        )

    def let_go(self, promised: float | None) -> None:
        """Release the lead, unless a look follows at once."""
        if promised is None and (self.follow_up.wait is None or self.leadership.stands_by):
            self.leadership.release()
        else:
            self.leadership.note()

    def wait(self, seconds: float) -> None:
        """Wait for a NOTIFY, at most this long, or until a follow-up is due; after one that can wait, until its follow-up. A stand-by
        ignores NOTIFYs and looks once a second."""
        until = time.monotonic() + seconds
        if self.leadership.stands_by:
            time.sleep(seconds)
        self.notified = self.is_urgent = False
        while heard := self.listener.hear(self.left(until)):
            self.follow_up.hear()
            self.notified = True
            self.is_urgent |= heard != {nudge.CAN_WAIT}
            if self.is_urgent or not self.left(until):
                return

    def left(self, until: float) -> float:
        """The seconds until the next look without a NOTIFY."""
        waits = [until - time.monotonic(), self.follow_up.wait]
        return max(min(wait for wait in waits if wait is not None), 0.0)

    def look(self) -> tuple[Batch, float]:
        """Do all work; its result, and how many seconds to wait."""
        began = time.monotonic()
        say = partial(self.presence.ask, troubles=self.couriers.troubles)
        wide = (
            Wide(ask=say, couriers=self.couriers.also, listens=not self.leadership.stands_by)
            if self.pace.asks
            else None
        )
        # An urgent NOTIFY is one of an event mostly.
        seen = None if self.is_urgent else self.looks.look(asks_for_events=True, wide=wide)
        if seen is None or self.needs_leader(seen):
            batch, leads = self.do_dispatch()
        else:
            batch, leads = Batch(), False
            self.leadership.rest()
        may_be_late = seen is None and wide is None and self.dispatch.wait is None and not self.leadership.stands_by
        if may_be_late and batch.has_only_rung and self.late.may_wait():
            # A child begins with the run now. The rest of the look comes with the follow-up, and takes no processor from it.
            self.pace.moved()
            self.was_ready = True
            return batch, self.late.wait
        seen = seen or self.looks.look(asks_for_events=False, wide=wide)
        own, due = seen.own, seen.runs
        batch += self.steps.do(seen, leads=leads)
        for chore in self.chores:
            if chore.is_due(due):
                woken = unless_failed(partial(chore.do, due), Woken(), self.failing, chore.name)
                if woken.ready:
                    self.stayers.wake(woken.ready)
                    self.ring_for_new(woken.ready)
                batch += Batch(ring_for=woken.ready, ready=woken.others, again=woken.runs > 0)
            else:
                self.failing.succeeded(chore.name)
        self.send_couriers(seen)
        self.ring(batch, due, began)
        retries = [] if batch.standby else [self.dispatch.wait, *self.steps.waits]
        if self.notified or batch != Batch():
            self.pace.moved()
        if wide is not None:
            self.pace.asked(due.rare)
        if seen.is_noted:
            self.leadership.noted()
        waits = [seconds_until_next(batch, own, due, self.pace.wait), *(wait for wait in retries if wait is not None)]
        if self.unheard_since is not None and not batch.ring_for:
            waits.append(max(self.ring_at - time.monotonic(), 0.0))
        self.late.looked(min(waits))
        return batch, min(waits)

    def needs_leader(self, seen: Seen) -> bool:
        return seen.own.has_events or self.steps.are_due(seen) or has_more_than_units(self.dispatch)

    def do_dispatch(self) -> tuple[Batch, bool]:
        """Dispatch a batch if this process leads; whether it does."""
        with reading_ahead(settings.WAKEFUL_DISPATCH_BATCH) as ask:
            if not self.leadership.take(ask):
                return Batch(standby=True), False
            self.costly.since, self.rules.seen = self.leadership.since, self.leadership.version
            batch = unless_failed(self.dispatch, Batch(left=1), name="dispatch")
        if batch.ring_for:
            self.ring_for_new(batch.ring_for)
        return batch, True

    def send_couriers(self, seen: Seen) -> None:
        for send, wait in (
            (self.couriers.ringer.deliver, seen.runs.outside),
            (self.couriers.messenger.send, seen.runs.slow),
            (self.couriers.notifier.send, seen.runs.notifications),
            (self.couriers.also[Postman].send, seen.own.outbound),
        ):
            if wait is not None:
                send(max(wait.total_seconds(), 0.0))
        for courier in self.couriers.also.values():
            if courier.name_of in seen.couriers:
                courier.send()

    def ring_for_new(self, runs: Mapping[str, int]) -> None:
        """At once: senders wait for these runs."""
        left = self.stayers.left(runs)
        if not left or self.couriers.ringer.quick.ring(left):
            # If a ring or a NOTIFY is lost, the runs are still ready then, and the courier rings. A NOTIFY also while others wait
            # for a busy worker: the child that it was for may be frozen. Further rings do not put it off for more than RING_EVERY:
            # runs of other queues, which other processes made ready, wait for the courier.
            now = time.monotonic()
            self.unheard_since = now if self.unheard_since is None else self.unheard_since
            claimed_at = now + CLAIMED
            ring_at = claimed_at if left != runs else max(self.ring_at, claimed_at)
            self.ring_at = min(ring_at, self.unheard_since + RING_EVERY)
        else:
            self.ring_at, self.unheard_since = time.monotonic() + RING_EVERY, None
            self.couriers.ringer.ring()

    def ring(self, batch: Batch, due: timers.RunTimers, began: float) -> None:
        """The doorbell has rung for runs that wait for a busy worker; ring again only on news, or after a second."""
        is_news = due.ready and (self.notified or not self.was_ready) and not batch.ring_for
        if batch.ready or is_news or (due.ready and time.monotonic() >= self.ring_at):
            if self.unheard_since is not None and due.ready:
                self.stayers.looked(began, runs_are_left=True)
            self.ring_at, self.unheard_since = time.monotonic() + RING_EVERY, None
            self.couriers.ringer.ring()
        elif not due.ready and not batch.ring_for:
            if self.unheard_since is not None:
                self.stayers.looked(began, runs_are_left=False)
            self.unheard_since = None
        self.was_ready = due.ready


def seconds_until_next(batch: Batch, own: DispatchTimers, due: timers.RunTimers, at_most: float) -> float:
    waits = [at_most]
    for wait_for in (own.window, own.offer, own.replay):
        if wait_for is not None:
            waits.append(max(wait_for.total_seconds(), KEEP_LOOKING))
    if own.absence is not None:
        wait = own.absence.total_seconds()
        waits.append(wait if wait > 0 else BLOCKED)
    if due.next is not None:
        # Overdue work that cannot be done yet (a lease that is too young, a busy key) must not cause a busy loop.
        wait = due.next.total_seconds()
        waits.append(wait if wait > 0 else OVERDUE)
    if batch.standby:
        waits.append(STANDBY)
    if batch.left:
        waits.append(KEEP_LOOKING)
    return min(waits)
