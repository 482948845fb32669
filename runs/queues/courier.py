"""Threads of the dispatcher that talk to the broker and to the network, so that its own never does: dispatch, timers and
rescue go on at full speed while a broker refuses or hangs.

A courier sleeps until it is sent, or until the time it has named itself. It has a database session of its own, and outlives
any error. One that hangs for ever is a trouble with a name; one that died is replaced.
"""

import threading
import time
from abc import ABC, abstractmethod
from typing import TypeVar

import psycopg
import structlog
from django.db import Error as DjangoDatabaseError
from django.db import close_old_connections, connection

from runs import outbox
from runs.db.listen import set_lazy_commits, set_timeouts
from runs.db.sql import fetch
from runs.failpoints import failpoint
from runs.network import broker
from runs.processes.lease import Trouble
from runs.queues import doorbell

log = structlog.get_logger(__name__)

C = TypeVar("C", bound="Courier")
NEVER = float("inf")
AGAIN = 1.0  # seconds: between two looks while runs wait for a ring to be heard, and after an error
STUCK = 60.0  # seconds on one errand: every wait of an errand is shorter by far
AT_ONCE = 50  # messages
NAME = "SELECT set_config('application_name', %s::text, false)"


class Courier(threading.Thread, ABC):
    name_of: str

    def __init__(self) -> None:
        super().__init__(name=f"wakeful-{self.name_of}", daemon=True)
        self.sent = threading.Condition()
        self.go_at = NEVER  # monotonic seconds
        self.left_at: float | None = None  # since when it is on an errand

    @abstractmethod
    def errand(self) -> float:
        """Do what there is to do; the seconds after which it is to be done again, or NEVER before it is asked for."""

    def send(self, within: float = 0.0) -> None:
        """Let it go on its errand, at the latest in so many seconds. Never blocks."""
        with self.sent:
            at = time.monotonic() + within
            if at < self.go_at:
                self.go_at = at
                self.sent.notify()

    def run(self) -> None:
        while True:
            with self.sent:
                while (wait := self.go_at - time.monotonic()) > 0:
                    self.sent.wait(None if wait == NEVER else wait)
                self.go_at = NEVER
                self.left_at = time.monotonic()
            self.send(self._go())

    def _go(self) -> float:
        try:
            self._open_session()
            return self.errand()
        except (DjangoDatabaseError, psycopg.Error):
            log.warning("courier.database_gone", courier=self.name_of, exc_info=True)
            connection.close()
        except Exception:
            # One thread boundary: an errand that failed is done again.
            log.exception("courier.failed", courier=self.name_of)
        finally:
            self.left_at = None
        return AGAIN

    def _open_session(self) -> None:
        close_old_connections()
        if connection.connection is None:
            set_timeouts()
            set_lazy_commits()
            fetch(NAME, [f"wakeful:{self.name_of}"])

    @property
    def troubles(self) -> dict[str, Trouble]:
        """By the name of the problem."""
        left_at = self.left_at
        lasted = time.monotonic() - left_at if left_at is not None else 0.0
        return {f"stuck:{self.name_of}": Trouble(lasted=lasted, error="")} if lasted > STUCK else {}


class Ringer(Courier):
    """Rings for workers, and hands the user's ordinary periodic tasks to the broker."""

    name_of = "ringer"

    def __init__(self) -> None:
        super().__init__()
        self.ring_at = self.deliver_at = NEVER

    def ring(self) -> None:
        """Runs may be waiting that a worker can claim."""
        self.ring_at = 0.0
        self.send()

    def deliver(self, within: float) -> None:
        """A message for the broker is available in so many seconds."""
        self.deliver_at = min(self.deliver_at, time.monotonic() + within)
        self.send(within)

    def errand(self) -> float:
        if pause := broker.breaker.retry_in:
            return pause
        now = time.monotonic()
        rings, delivers, again = now >= self.ring_at, now >= self.deliver_at, now + AGAIN
        # An errand that fails is done again; what is asked for meanwhile is not forgotten.
        if rings:
            self.ring_at = again
            failpoint("before_ring")
            if not doorbell.ring() and self.ring_at == again:
                self.ring_at = NEVER
        if delivers:
            self.deliver_at = again
            found = outbox.deliver_outside(AT_ONCE)
            if self.deliver_at == again:
                self.deliver_at = 0.0 if found else NEVER
        if broker.breaker.is_open and not (rings or delivers):
            self._ask()
        if broker.breaker.is_open:
            return max(broker.breaker.retry_in, 0.01)
        return max(min(self.ring_at, self.deliver_at) - time.monotonic(), 0.0)

    def _ask(self) -> None:
        try:
            broker.ask()
        except broker.BrokerAway:
            log.debug("broker.still_away")

    @property
    def troubles(self) -> dict[str, Trouble]:
        opened_at = broker.breaker.opened_at
        if opened_at is None:
            return super().troubles
        away = Trouble(lasted=time.monotonic() - opened_at, error=broker.breaker.error)
        return {**super().troubles, "broker-away": away}


class Messenger(Courier):
    """Sends what may take seconds: alarms. It needs neither the broker nor a worker."""

    name_of = "messenger"

    def errand(self) -> float:
        if outbox.deliver_slow():
            return 0.0
        connection.close()  # it is seldom needed
        return NEVER


class Couriers:
    """Both of them, while the dispatcher lives. A dead one is replaced."""

    def __init__(self) -> None:
        self.ringer, self.messenger = Ringer(), Messenger()

    def watch(self) -> dict[str, Trouble]:
        """Start those that do not live; what they cannot do."""
        if not self.ringer.is_alive():
            self.ringer = self._begin(self.ringer, Ringer())
        if not self.messenger.is_alive():
            self.messenger = self._begin(self.messenger, Messenger())
        return {**self.ringer.troubles, **self.messenger.troubles}

    def _begin(self, dead: C, courier: C) -> C:
        if dead.ident is not None:
            log.error("courier.died", courier=courier.name_of)
        courier.start()
        courier.send()
        return courier
