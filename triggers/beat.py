"""Celery Beat's Scheduler (CELERY_BEAT_SCHEDULER = "triggers.beat:Scheduler"): fires due schedules from the database.

Any number of Beats may run; `triggers.ticks` says why each nominal time still fires once. Between two fires a Beat
blocks on LISTEN until the next due time or an edit, and looks every WAKEFUL_SAFETY_LOOK even if nothing says so.
"""

import contextlib
import time
from datetime import timedelta
from typing import Any

import psycopg
import structlog
from celery import beat
from django.conf import settings
from django.db import Error as DjangoDatabaseError
from django.db import connection

from runs.lease import Presence
from runs.listen import Listener, set_timeouts
from runs.models import Worker
from triggers import ticks
from triggers.schedules import install_static

log = structlog.get_logger(__name__)

CHANNEL = "wakeful_beat"
RECONNECT = 1.0  # seconds
BUSY = timedelta(milliseconds=100)  # until the next look at what another Beat or an editor holds


class Scheduler(beat.Scheduler):
    """Beat calls `tick` in a loop and sleeps for what it returns: nothing, because the waiting is done in here."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.presence = Presence(Worker.Kind.BEAT)
        self.listener = Listener([CHANNEL])
        self.is_connected = False
        self.is_looking = False
        super().__init__(*args, **kwargs)
        self.max_interval = int(settings.WAKEFUL_SAFETY_LOOK.total_seconds())

    @property
    def info(self) -> str:
        """A line of Beat's banner."""
        return "    . schedules -> the database"

    def setup_schedule(self) -> None:
        """Nothing: the database may be away yet; see `connect`."""

    def tick(self, *args: Any, **kwargs: Any) -> float:
        """Fire what is due, then wait for the next due time or an edit. A lost database is waited for."""
        try:
            self.listener.wait(self.look().total_seconds())
        except (DjangoDatabaseError, psycopg.Error):
            log.warning("beat.database_gone", exc_info=True)
            self.is_connected = False
            connection.close()
            time.sleep(RECONNECT)
        return 0.0

    def look(self) -> timedelta:
        """Do what there is to do; how long there is nothing more."""
        self.is_looking = True
        try:
            if not self.is_connected:
                self.connect()
            self.presence.renew()
            return fire_all_due()
        finally:
            self.is_looking = False

    def connect(self) -> None:
        # Listening begins before the first look, so that no edit falls in between.
        self.listener.open()
        set_timeouts()
        install_static(self.app)
        self.is_connected = True
        log.info("beat.listening")

    def close(self) -> None:
        """Called by the handler of SIGTERM, wherever it struck, and again when Beat has stopped."""
        if self.is_looking:
            return  # the connection is in use further down this very stack
        self.listener.close()
        connection.close()  # it may have been left in the middle of a statement
        with contextlib.suppress(DjangoDatabaseError):
            self.presence.close()


def fire_all_due() -> timedelta:
    """Fire, batch by batch, until nothing is due; how long nothing will be, or what is due is somebody else's."""
    while True:
        look = ticks.look()
        done = 0
        if look.has_stale:
            done += ticks.settle()
        if look.is_due:
            done += ticks.fire_due(look.now)
        if not done:
            return time_until_next(look)


def time_until_next(look: ticks.Look) -> timedelta:
    safety: timedelta = settings.WAKEFUL_SAFETY_LOOK
    if look.next_due is None:
        return safety
    if look.is_due:
        return BUSY
    return min(look.next_due - look.now, safety)
