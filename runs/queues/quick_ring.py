"""Rings by the dispatcher's own thread: messages made beforehand, put into the broker's queue by one script on a kept connection.
This is ten times faster than Celery's `send_task`.

1. It never holds up dispatch. The dispatcher only rings on a connection that is open, and waits ANSWER for the broker. After any
   error the courier rings, and after a pause, which grows, makes a new bell.
2. A message is one of Celery's own: `send_task` wrote it, and only its ids are replaced.
3. A queue of the broker holds at most one of its rings per child, as for the courier. A superfluous ring finds no work.
4. Only plain Redis or Valkey has a bell. The courier rings for Sentinel and other brokers, and wherever something wants to see each
   message that Celery sends.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import structlog
from celery import current_app, signals
from kombu.transport import redis as kombu_redis
from kombu.utils.uuid import uuid
from redis.backoff import NoBackoff
from redis.retry import Retry

from runs.failpoints import failpoint
from runs.network import broker
from runs.network.breakers import Breaker
from runs.queues.doorbell import QUEUE_PREFIX, Wanted, send

log = structlog.get_logger(__name__)

ANSWER = 0.025  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 60.0  # seconds before a new bell after an error
FRESH = 30.0  # seconds for which the bounds of the queues hold
MOST = 32  # rings of a queue at once; the courier sends more
PUSH = """
local room = tonumber(ARGV[1]) - redis.call('LLEN', KEYS[1])
for place = 2, math.min(#ARGV, room + 1) do redis.call('LPUSH', KEYS[1], ARGV[place]) end
return room
"""
# A pool's options for notices of maintenance, at which a connection waits longer. Protocol 2 has none.
OF_NOTICES = ("maint_notifications", "oss_cluster", "orig_")
ID = "wakeful-doorbell"  # of the task in a message as it is made


class NoBell(Exception):
    """The broker is none that can be rung this way."""


@dataclass(frozen=True, kw_only=True)
class Message:
    """The text of a ring for a queue, and the broker's key of it. `tag`: the delivery tag to be replaced."""

    key: str
    text: str
    tag: str

    def written(self) -> str:
        """As Celery would write the next one."""
        return self.text.replace(ID, uuid()).replace(self.tag, uuid())


@dataclass(kw_only=True)
class Bell:
    """A connection to the broker, a message for each queue, and how many rings the queues may hold."""

    connection: Any
    messages: dict[str, Message]
    bounds: Mapping[str, int] = field(default_factory=dict)
    read_at: float = float("-inf")

    @property
    def is_fresh(self) -> bool:
        return time.monotonic() - self.read_at < FRESH

    def ring(self, runs: Mapping[str, int], bounds: Mapping[str, int]) -> None:
        """Ring for this many runs of each queue. Raises any error of the connection or the broker."""
        commands = [self._command(queue, min(count, MOST), bounds[queue]) for queue, count in runs.items()]
        self.connection.send_packed_command(self.connection.pack_commands(commands), check_health=False)
        for _ in commands:
            self.connection.read_response()

    def _command(self, queue: str, rings: int, bound: int) -> Sequence[Any]:
        message = self.messages[queue]
        return ("EVAL", PUSH, 1, message.key, bound, *(message.written() for _ in range(min(rings, bound))))

    def close(self) -> None:
        with suppress(Exception):
            self.connection.disconnect()


class QuickRing:
    """The bell of a dispatcher. Its own thread rings; the courier makes the bell."""

    def __init__(self) -> None:
        self.bell: Bell | None = None
        self.messages: dict[str, Message] = {}
        self.breaker = Breaker(first=FIRST_PAUSE, longest=LONGEST_PAUSE)

    def ring(self, runs: Mapping[str, int]) -> bool:
        """Ring for this many runs of each queue. False: the courier must ring as well."""
        bell = self.bell
        if bell is None:
            return False
        bounds = bell.bounds  # the courier replaces them at any time
        known = {queue: count for queue, count in runs.items() if queue in bounds}
        try:
            failpoint("before_ring")
            bell.ring(known, bounds)
        except Exception as error:
            # Any error of the broker's client: dispatch goes on.
            self.bell = None
            bell.close()
            self._failed(error)
            return False
        self.breaker.succeeded()
        return bell.is_fresh and len(known) == len(runs) and max(runs.values(), default=0) <= MOST

    def prepare(self, wanted: Sequence[Wanted]) -> None:
        """Take over the bounds of the queues, and make a bell if there is none. For the courier, which may wait."""
        if self.breaker.retry_in or broker.breaker.is_open:
            return
        bounds = {line.queue: line.bound for line in wanted}
        try:
            if bounds and (self.bell is None or not bounds.keys() <= self.messages.keys()):
                self._make(bounds)
        except broker.BrokerAway:
            return
        except Exception as error:
            self._failed(error)
            return
        if bell := self.bell:
            bell.bounds, bell.read_at = bounds, time.monotonic()

    def _make(self, bounds: Mapping[str, int]) -> None:
        with broker.producer() as producer:
            for queue in bounds.keys() - self.messages.keys():
                self.messages[queue] = message_of(producer, queue)
            channel: Any = producer.channel
        # From here on no error means that the courier cannot ring either.
        if self.bell is None:
            bell = Bell(connection=connected(channel.pool), messages=self.messages, bounds=bounds)
            try:
                # May this user execute scripts, and does the broker answer in time?
                bell.ring(dict.fromkeys(bounds, 0), bounds)
            except BaseException:
                bell.close()
                raise
            self.bell = bell

    def _failed(self, error: Exception) -> None:
        text = f"{type(error).__name__}: {error}"[:300]
        if not self.breaker.is_open:
            log.info("quick_ring.failed", error=text)
        self.breaker.failed(text)
        if isinstance(error, NoBell):
            self.breaker.retry_at = float("inf")


def message_of(producer: Any, queue: str) -> Message:
    """A ring as Celery sends it; it is not sent."""
    app = current_app
    receivers = (signals.before_task_publish, signals.after_task_publish, signals.task_sent)
    if any(signal.receivers for signal in receivers) or app.conf.task_send_sent_event:
        raise NoBell("each message that Celery sends is observed")
    with caught(producer.channel) as commands, producer.batch(max_size=1):
        send(producer, queue, task_id=ID)
    if [name for name, *_ in commands] != ["lpush"]:
        raise NoBell(f"queue {QUEUE_PREFIX}{queue} takes more than one command")
    [(_, key, text)] = commands
    message = json.loads(text)
    if message["headers"]["id"] != ID:
        raise NoBell("the task's id is not in a header")
    return Message(key=producer.channel.global_keyprefix + key, text=text, tag=message["properties"]["delivery_tag"])


@contextmanager
def caught(channel: Any) -> Iterator[list[tuple[Any, ...]]]:
    """The commands of a batch of the channel, which are not sent."""
    if type(channel) is not kombu_redis.Channel:
        raise NoBell(f"{type(channel).__name__} is no channel of plain Redis")
    batch, in_use = Caught(channel, max_size=1), vars(channel)
    in_use["create_publish_batch"] = lambda max_size: batch
    try:
        yield batch.commands
    finally:
        del in_use["create_publish_batch"]
        batch.close()


class Caught(kombu_redis.PublishBatch):  # type: ignore[name-defined, misc]  # new in kombu 5.7, unknown to the stubs
    def __init__(self, channel: Any, max_size: int) -> None:
        super().__init__(channel, max_size)
        self.commands: list[tuple[Any, ...]] = []

    def add(self, name: str, *args: Any) -> None:
        self.commands.append((name, *args))


def connected(pool: Any) -> Any:
    """A connection with the settings of Celery's own, except that it does not wait and tries nothing twice."""
    if pool.connection_kwargs.get("credential_provider") is not None:
        raise NoBell("its credentials change")  # kombu authenticates its own connections again
    given = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(OF_NOTICES)}
    connection = pool.connection_class(
        **{
            **given,
            "socket_timeout": ANSWER,
            "socket_connect_timeout": broker.CONNECT,
            "health_check_interval": 0,
            "retry_on_timeout": False,
            "retry": Retry(NoBackoff(), 0),
            "protocol": 2,
        }
    )
    connection.connect()
    return connection
