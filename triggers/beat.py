"""Celery Beat's Scheduler (CELERY_BEAT_SCHEDULER = "triggers.beat:Scheduler"): fires due schedules from the database.

Any number of Beats may run; `triggers.schedules.firing.settle` explains why each nominal time fires only once. Between fires
a Beat blocks on LISTEN until the next due time or an edit, and also looks every WAKEFUL_SAFETY_LOOK, or half as often while nothing
is done.
"""

import contextlib
import time
from datetime import timedelta
from functools import partial
from typing import Any

import structlog
from celery import beat
from django.conf import settings
from django.db import OperationalError, connection

from runs.db.errors import DATABASE_ERRORS, is_gone
from runs.db.listen import Listener, set_timeouts
from runs.db.patience import is_locked
from runs.db.schema_check import require_migrations
from runs.db.sql import database_now
from runs.models import Worker
from runs.processes.lease import Presence, pulse_of, rest
from triggers.schedules import own_tasks
from triggers.schedules.backfill import advance
from triggers.schedules.firing import due_schedules, owed_fires, reconcile, second_beat
from triggers.schedules.static_entries import install_static

log = structlog.get_logger(__name__)

CHANNEL = "wakeful_beat"
RECONNECT = 1.0  # seconds
TRIES = 2  # to fire a schedule alone after it took too long
BUSY = timedelta(milliseconds=100)
IDLE_LOOKS = 6  # safety looks without work, after which there is one safety look in two
WALK_LOOKS = 12  # safety looks between two walks over all schedules


class Scheduler(beat.Scheduler):
    """Beat calls `tick` in a loop and sleeps for the seconds it returns: 0, because `tick` itself waits."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.presence = Presence(Worker.Kind.BEAT)
        self.pulse = pulse_of(Worker.Kind.BEAT)
        self.listener = Listener([CHANNEL])
        self.is_connected = False
        self.is_lost = False  # and this has been logged
        self.is_looking = False
        self.walk = reconcile.Walk()
        self.walks_at = self.backfills_at = 0.0  # in terms of time.monotonic()
        self.worked_at = time.monotonic()
        self.static_for: bool | None = None  # what `walk.watches_tables` was when the static entries were installed
        self.is_ending = False
        self.suspects: dict[int, int] = {}  # schedules that took too long, and how often each did so when fired alone
        super().__init__(*args, **kwargs)
        self.max_interval = int(settings.WAKEFUL_SAFETY_LOOK.total_seconds())

    @property
    def info(self) -> str:
        """A line of Beat's banner."""
        return "    . schedules -> the database"

    def setup_schedule(self) -> None:
        """Does nothing: the database may not be reachable yet; see `connect`."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Do one batch of work, or wait if there is none. If the database is lost, wait for it."""
        if self.is_ending:
            # SIGTERM may arrive where Python swallows the exception of its handler, e.g. in a destructor.
            raise SystemExit
        self.pulse.beat()
        try:
            wait = self.look()
            if wait:
                self.listener.wait(wait.total_seconds())
        except owed_fires.TookTooLong as error:
            self.suspects[error.id] = self.suspects.get(error.id, -1) + 1
            self.lose_connection(error)
        except DATABASE_ERRORS as error:
            self.lose_connection(error)
        return 0.0

    def look(self) -> timedelta:
        """Do one batch; returns how long to wait."""
        self.is_looking = True
        try:
            if not self.is_connected:
                self.connect()
            if self.suspects:
                self.presence.renew()
                self.try_alone()
                return timedelta(0)
            wait = self.work()
            self.keep_in_order()
            return wait
        finally:
            self.is_looking = False

    def work(self) -> timedelta:
        """Do one batch of stale schedules, one of due schedules and one of each backfill; returns how long to wait, zero if
        anything was done."""
        look = due_schedules.find_due(partial(self.presence.ask, troubles=second_beat.troubles()))
        done = 0
        if look.has_unarmed:
            done += reconcile.rearm()
        if look.has_stale:
            done += due_schedules.settle(look.now)
        if look.is_due:
            done += due_schedules.fire_due(look.now)
        if look.has_backfills:
            done += self.advance_backfills()
        if done:
            self.worked_at = time.monotonic()
            return timedelta(0)
        wait = time_until_next(look, rest() if self.is_idle else settings.WAKEFUL_SAFETY_LOOK)
        return min(wait, advance.LOOK_EVERY) if look.has_backfills else wait

    @property
    def is_idle(self) -> bool:
        looks: timedelta = settings.WAKEFUL_SAFETY_LOOK * IDLE_LOOKS
        return time.monotonic() - self.worked_at > looks.total_seconds()

    def advance_backfills(self) -> bool:
        if time.monotonic() < self.backfills_at:
            return False
        more = advance.advance()
        self.backfills_at = time.monotonic() + (0 if more else advance.LOOK_EVERY.total_seconds())
        return more

    def try_alone(self) -> None:
        """Fire a schedule that took too long alone; after TRIES failures stop it, so that the others go on."""
        id, tries = next(iter(self.suspects.items()))
        if tries < TRIES:
            due_schedules.try_alone(id)
        else:
            due_schedules.give_up(id)
        del self.suspects[id]

    def keep_in_order(self) -> None:
        """Create missing rows, and check schedules that no edit has marked: at each safety look, after due schedules, and with a
        pause between two walks over all of them.
        """
        if time.monotonic() < self.walks_at:
            return
        safety_look = settings.WAKEFUL_SAFETY_LOOK.total_seconds()
        self.walks_at = time.monotonic() + safety_look
        try:
            self.walk.step()
        except OperationalError as error:
            if not is_locked(error):
                raise
            log.info("beat.walk_put_off", reason=str(error).strip())
            return
        watches_tables = self.walk.watches_tables
        if self.static_for != watches_tables and install_static(self.app, watches_tables=watches_tables):
            self.static_for = watches_tables
        if self.walk.is_at_end:
            self.walks_at = time.monotonic() + WALK_LOOKS * safety_look

    def connect(self) -> None:
        require_migrations()
        # Listen before the first look, so that no edit is missed in between.
        self.listener.open()
        set_timeouts()
        second_beat.begin(database_now())
        if changed := own_tasks.settle_again():
            log.info("beat.settled_again", schedules=changed, adopts=settings.WAKEFUL_ADOPT_PERIODIC_TASKS)
        self.is_connected = True
        self.is_lost = False
        log.info("beat.listening")

    def lose_connection(self, error: Exception) -> None:
        if not self.is_lost:
            if is_gone(error):
                log.warning("beat.database_gone", reason=str(error).strip())
            else:
                log.error("beat.failed", exc_info=error)
        self.is_connected, self.is_lost = False, True
        self.listener.close()
        connection.close()
        time.sleep(RECONNECT)

    def close(self) -> None:
        """Called by the SIGTERM handler at any point of the code, and again when Beat has stopped."""
        self.is_ending = True
        if self.is_looking:
            return  # the connection is in use further down this call stack
        self.listener.close()
        connection.close()  # a statement may be unfinished
        with contextlib.suppress(*DATABASE_ERRORS):
            self.presence.close()


def time_until_next(look: due_schedules.DueSchedules, safety: timedelta) -> timedelta:
    if look.is_due or look.has_stale:
        return BUSY  # another Beat or an editor holds it
    if look.next_due is None:
        return safety
    return min(look.next_due - look.now, safety)
