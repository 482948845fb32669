"""The one door to Celery's broker for what Wakeful sends itself, with one circuit breaker per process: a broker that refuses
or hangs costs its caller one short wait, and then ever fewer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import structlog
from celery import current_app
from django.conf import settings
from kombu import Connection, Producer
from kombu.exceptions import OperationalError
from kombu.pools import producers

log = structlog.get_logger(__name__)

# Seconds. Celery's own connections wait longer (CELERY_BROKER_TRANSPORT_OPTIONS); a ring is not worth that, and a child of a
# worker that waits for one executes nothing meanwhile.
ANSWER = 0.5
CONNECT = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0


class BrokerAway(Exception):
    """Nothing was sent: the broker cannot be reached, or failed so lately that it is not asked yet."""


@dataclass
class Breaker:
    """Open from the first failure until something was sent again. While it is open one try is made after each pause, and the
    pauses grow."""

    opened_at: float | None = None  # monotonic seconds
    error: str = ""
    retry_at: float = float("-inf")
    pause: float = 0.0

    @property
    def is_open(self) -> bool:
        return self.opened_at is not None

    @property
    def retry_in(self) -> float:
        """Seconds until the broker is asked again; 0: it may be asked now."""
        return max(0.0, self.retry_at - time.monotonic()) if self.is_open else 0.0

    def failed(self, error: Exception) -> None:
        now = time.monotonic()
        if self.opened_at is None:
            self.opened_at, self.pause = now, FIRST_PAUSE
            log.warning("broker.away", error=repr(error)[:500])
        else:
            self.pause = min(self.pause * 2, LONGEST_PAUSE)
        self.error = f"{type(error).__name__}: {error}"[:300]
        self.retry_at = now + self.pause

    def succeeded(self) -> None:
        if self.opened_at is not None:
            log.info("broker.back", after=round(time.monotonic() - self.opened_at, 1))
        self.opened_at, self.error, self.retry_at, self.pause = None, "", float("-inf"), 0.0


breaker = Breaker()


@contextmanager
def producer() -> Iterator[Producer]:
    """A connected producer. Raises BrokerAway before anything was sent, at once while the breaker is open; what the body
    raises is raised as it is, and opens the breaker where the broker was to blame."""
    if breaker.retry_in:
        raise BrokerAway(breaker.error)
    with producers[connection()].acquire(block=True, timeout=2) as found:
        try:
            _connect(found)
        except Exception as error:
            # Whatever a broker's client raises here: without a connection nothing can be sent.
            _broken(found, error)
            raise BrokerAway(breaker.error) from error
        try:
            yield found
        except broker_errors(found) as error:
            _broken(found, error)
            raise
        breaker.succeeded()


def ask() -> None:
    """Ask a broker that was away whether it is back. Raises BrokerAway."""
    with producer():
        pass


@cache
def connection() -> Connection:
    """The broker as everybody has it, with less patience. kombu keeps its connections, and drops them after a fork."""
    options: dict[str, Any] = dict(settings.CELERY_BROKER_TRANSPORT_OPTIONS)
    if "socket_timeout" in options:
        options |= {"socket_timeout": ANSWER, "socket_connect_timeout": CONNECT}
    found: Connection = current_app.connection_for_write(connect_timeout=CONNECT)
    return found.clone(transport_options=options)


def _connect(found: Producer) -> None:
    # Once: left to itself kombu tries again for 6 s.
    connection: Any = found.connection
    connection.ensure_connection(max_retries=0)
    if breaker.is_open and is_redis(found):
        channel: Any = found.channel
        channel.client.ping()


def _broken(found: Producer, error: Exception) -> None:
    breaker.failed(error)
    connection: Any = found.connection
    with suppress(Exception):
        connection.close()  # the next try makes a connection of its own


def broker_errors(found: Producer) -> tuple[type[Exception], ...]:
    connection: Any = found.connection
    errors: tuple[type[Exception], ...] = (OperationalError, *connection.connection_errors, *connection.channel_errors)
    return errors


def is_redis(found: Producer) -> bool:
    connection: Any = found.connection
    return bool(connection.transport.driver_type == "redis")
