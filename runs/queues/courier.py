"""Threads of the dispatcher that talk to the broker and the network, or read what may be slow, so that dispatch, timers and rescue go
on at full speed while a broker refuses or hangs, or a table is locked.

A courier sleeps until it is sent, or until the time that its last errand returned. It has a database session of its own, and
survives any error. One that hangs, or whose errands fail, is reported as a trouble; one that died is replaced.
"""

import threading
import time
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, TypeVar

import structlog
from django.db import close_old_connections, connection

from runs import outbox
from runs.db.errors import DATABASE_ERRORS, is_gone, log_failure
from runs.db.listen import set_lazy_commits, set_timeouts
from runs.db.sql import fetch
from runs.failpoints import failpoint
from runs.network import broker
from runs.network.sending import BLOCKED, Sending
from runs.notifications.deliver import Deliverer
from runs.processes.failing import Failing
from runs.processes.lease import Trouble
from runs.queues import doorbell

log = structlog.get_logger(__name__)

C = TypeVar("C", bound="Courier")
NEVER = float("inf")
AGAIN = 1.0  # seconds between two looks while runs wait for a worker, and after an error
STUCK = 60.0  # seconds of one errand, whose waits are all much shorter
AT_ONCE = 50  # messages of one errand
NAME = "SELECT set_config('application_name', %s::text, false)"


class Courier(threading.Thread, ABC):
    name_of: ClassVar[str]
    # Is there work for it? A condition of SQL, for couriers of the rooms above; the dispatcher asks it at its safety look.
    has_work: ClassVar[str] = ""

    def __init__(self) -> None:
        super().__init__(name=f"wakeful-{self.name_of}", daemon=True)
        self.sent = threading.Condition()
        self.go_at = NEVER  # monotonic seconds
        self.left_at: float | None = None  # when the thread's current errand began
        self.failing = Failing()

    @abstractmethod
    def errand(self) -> float:
        """Do the work; return the seconds until the next errand, or NEVER to sleep until it is sent."""

    def send(self, within: float = 0.0) -> None:
        """Start an errand within this many seconds. Never blocks."""
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
            wait = self.errand()
            self.failing.succeeded(self.name_of)
            return wait
        except Exception as error:
            # The boundary of the thread: a failed errand is repeated.
            log_failure(log, "courier", error, courier=self.name_of)
            if not is_gone(error):
                self.failing.failed(self.name_of, error)
            if isinstance(error, DATABASE_ERRORS):
                connection.close()
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
        left_at = self.left_at
        lasted = time.monotonic() - left_at if left_at is not None else 0.0
        stuck = {f"stuck:{self.name_of}": Trouble(lasted=lasted, error="")} if lasted > STUCK else {}
        return {**stuck, **self.failing.troubles}


class Ringer(Courier):
    """Rings for workers, and sends the user's ordinary periodic tasks to the broker."""

    name_of = "ringer"

    def __init__(self) -> None:
        super().__init__()
        self.ring_at = self.deliver_at = NEVER
        from runs.queues.quick_ring import QuickRing  # loads the client of Redis, which pages and workers do without

        self.quick = QuickRing()

    def ring(self) -> None:
        """Ring: runs may wait for a worker."""
        self.ring_at = 0.0
        self.send()

    def deliver(self, within: float) -> None:
        """Send a message for the broker that is available in this many seconds."""
        self.deliver_at = min(self.deliver_at, time.monotonic() + within)
        self.send(within)

    def errand(self) -> float:
        if pause := broker.breaker.retry_in:
            return pause
        now = time.monotonic()
        rings, delivers, again = now >= self.ring_at, now >= self.deliver_at, now + AGAIN
        # A failed errand is repeated, and requests that come meanwhile are kept.
        if rings:
            self.ring_at = again
            failpoint("before_ring")
            lines = doorbell.ring()
            if self.ring_at == again and not any(line.claimable for line in lines):
                self.ring_at = NEVER
            self.quick.prepare(lines)
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
    """Sends slow messages: alarms. It needs neither the broker nor a worker."""

    name_of = "messenger"

    def errand(self) -> float:
        if outbox.deliver_slow():
            return 0.0
        connection.close()  # rarely needed
        return NEVER


class Deliveries(Protocol):
    """Work of a courier that has threads of its own. `deliver_some` returns the seconds until the next one."""

    sending: Sending[Any, Any]

    def deliver_some(self) -> float: ...


class Sender(Courier):
    """Sends messages in threads of its own. `rest`: seconds between two looks while a message is due and cannot be sent
    yet.
    """

    deliverer: Deliveries
    rest: ClassVar[float] = BLOCKED

    def __init__(self) -> None:
        super().__init__()
        self.rest_until = 0.0

    def errand(self) -> float:
        # The dispatcher sends it at each of its looks while something is due, also if that cannot be sent yet.
        rest = self.rest_until - time.monotonic()
        if rest > 0 and self.deliverer.sending.results.empty():
            return rest
        wait = self.deliverer.deliver_some()
        if wait == BLOCKED:
            self.rest_until = time.monotonic() + self.rest
        elif wait == NEVER:
            connection.close()
        return wait


class Notifier(Sender):
    """Plans notifications and has them sent."""

    name_of = "notifier"

    def __init__(self) -> None:
        super().__init__()
        self.deliverer: Deliverer = Deliverer(wake=self.send)


further: list[type[Courier]] = []  # of the rooms above; `config.wiring` adds them


class Couriers:
    """The couriers of a dispatcher; `also` are those of the rooms above."""

    def __init__(self, *also: type[Courier]) -> None:
        self.ringer, self.messenger, self.notifier = Ringer(), Messenger(), Notifier()
        self.also: dict[type[Courier], Courier] = {kind: kind() for kind in also}
        self.failing = Failing()  # what the dispatcher does itself; reported with the troubles of its couriers

    def watch(self) -> None:
        """Start couriers that are not alive."""
        if not self.ringer.is_alive():
            self.ringer = self._begin(self.ringer, Ringer())
        if not self.messenger.is_alive():
            self.messenger = self._begin(self.messenger, Messenger())
        if not self.notifier.is_alive():
            self.notifier = self._begin(self.notifier, Notifier())
        for kind, courier in self.also.items():
            if not courier.is_alive():
                self.also[kind] = self._begin(courier, kind())

    @property
    def troubles(self) -> dict[str, Trouble]:
        everyone = (self.ringer, self.messenger, self.notifier, *self.also.values())
        of_couriers = {name: trouble for courier in everyone for name, trouble in courier.troubles.items()}
        return {**of_couriers, **self.failing.troubles}

    def _begin(self, dead: C, courier: C) -> C:
        if dead.ident is not None:
            log.error("courier.died", courier=courier.name_of)
        courier.start()
        courier.send()
        return courier
