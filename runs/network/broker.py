"""The connection to Celery's broker for messages of Wakeful itself, with one circuit breaker per process: a broker that refuses or
hangs costs one short wait, and then fewer and fewer."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import structlog
from celery import current_app
from django.conf import settings
from kombu import Connection, Producer
from kombu.exceptions import OperationalError
from kombu.pools import producers

from runs.network.breakers import Breaker
from runs.network.broker_options import REDIS, impatient

if TYPE_CHECKING:
    import redis

log = structlog.get_logger(__name__)

# Seconds. Celery's own connections wait longer (CELERY_BROKER_TRANSPORT_OPTIONS). A ring is not worth that: a worker's child
# executes nothing while it waits.
ANSWER = 0.5
CONNECT = 1.0
PATIENT = 5.0  # for a person, who waits
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 15.0


class BrokerAway(Exception):
    """Nothing was sent: the broker cannot be reached, or it failed a moment ago and the pause is not over."""


def closed_breaker() -> Breaker:
    return Breaker(first=FIRST_PAUSE, longest=LONGEST_PAUSE)


breaker = closed_breaker()


@contextmanager
def producer() -> Iterator[Producer]:
    """A connected producer. Raises BrokerAway before anything is sent, at once while the breaker is open. Errors of the body
    pass through; broker errors open the breaker."""
    if breaker.retry_in:
        raise BrokerAway(breaker.error)
    with producers[connection()].acquire(block=True, timeout=2) as found:
        try:
            _connect(found)
        except Exception as error:
            # Any error of a broker's client: without a connection nothing can be sent.
            _broken(found, error)
            raise BrokerAway(breaker.error) from error
        try:
            yield found
        except broker_errors(found) as error:
            _broken(found, error)
            raise
        if breaker.opened_at is not None:
            log.info("broker.back", after=round(time.monotonic() - breaker.opened_at, 1))
        breaker.succeeded()


def ask() -> None:
    """Try to connect to a broker that was away. Raises BrokerAway."""
    with producer():
        pass


@cache
def connection() -> Connection:
    """Celery's broker connection with shorter timeouts. kombu keeps connections, and drops them after a fork."""
    options = impatient(settings.CELERY_BROKER_TRANSPORT_OPTIONS, answer=ANSWER, connect=CONNECT)
    found: Connection = current_app.connection_for_write(connect_timeout=CONNECT)
    return found.clone(transport_options=options)


@contextmanager
def redis_client() -> Iterator["redis.Redis | None"]:
    """A client of the broker's Redis, which it reaches as Celery does: by TLS, by Sentinel. Its keys have no prefix. None: the broker
    is another one. Raises BrokerAway and errors of the client."""
    if not settings.CELERY_BROKER_URL.startswith(REDIS):
        yield None
        return
    import redis  # which pages and workers do without

    with connection_of_its_own(PATIENT) as found:
        try:
            found.ensure_connection(max_retries=1, timeout=2)
            channel: Any = found.default_channel
        except Exception as error:
            # Any error of a broker's client.
            raise BrokerAway(f"{type(error).__name__}: {error}"[:300]) from error
        yield redis.Redis(connection_pool=channel.pool)


def connection_of_its_own(seconds: float) -> Connection:
    """A connection of its own, which is to be closed, and waits this long for an answer."""
    options = impatient(settings.CELERY_BROKER_TRANSPORT_OPTIONS, answer=seconds, connect=seconds)
    found: Connection = current_app.connection_for_write(connect_timeout=seconds, transport_options=options)
    return found


# Any: kombu's stubs lack most of what a Producer has.
def _connect(found: Any) -> None:
    # One try: by default kombu retries for 6 s.
    found.connection.ensure_connection(max_retries=0)
    if breaker.is_open and is_redis(found):
        found.channel.client.ping()


def _broken(found: Any, error: Exception) -> None:
    if not breaker.is_open:
        log.warning("broker.away", error=repr(error)[:500])
    # kombu's error for an answer that does not come in time has no text.
    breaker.failed(f"{type(error).__name__}: {str(error) or repr(error.__cause__)}"[:300])
    with suppress(Exception):
        found.connection.close()  # the next try connects again


def broker_errors(found: Any) -> tuple[type[Exception], ...]:
    return (OperationalError, *found.connection.connection_errors, *found.connection.channel_errors)


def is_redis(found: Any) -> bool:
    return bool(found.connection.transport.driver_type == "redis")
