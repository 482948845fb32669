"""Doorbells. A doorbell is a Celery message that means "queue Q has work". A lost doorbell costs a second; a superfluous
one finds no work.
"""

from dataclasses import dataclass
from typing import Any

import structlog
from celery import current_app
from django.conf import settings
from kombu import Producer, Queue

from runs.db.ready_runs import IS_PAUSED, IS_READY, IS_STOPPED, PLACE
from runs.db.sql import fetch_as
from runs.network import broker
from runs.processes.alive import TAKES_RUNS

log = structlog.get_logger(__name__)

DOORBELL = "runs.doorbell"
FORMAT = 1  # of the doorbell message, for rolling upgrades
# Other processes may ring between this one's look and its ring. A dispatcher fills a queue up to one ring per child, and a child
# adds at most one: together at most two per child.
RINGS_PER_CHILD = 1
QUEUE_PREFIX = "runs."

# Counts only runs that a live worker may claim now, and at most as many as can be rung for: agent by agent, from the end of the
# index, because an old snapshot keeps entries of claimed runs at its beginning.
BACKWARDS = f"run.priority DESC, {PLACE} DESC, run.seq DESC"
WANTED = f"""
WITH live AS (
  SELECT unnest(worker.queues) AS queue, worker.concurrency, worker.agents FROM runs_worker worker WHERE {TAKES_RUNS}
), capacity AS (
  SELECT queue, sum(concurrency)::int * %(rings)s::int AS bound, (
    SELECT greatest(max_running - (SELECT count(*) FROM runs_run WHERE status = 'running' AND queue = live.queue), 0)
    FROM runs_queue WHERE name = live.queue AND max_running IS NOT NULL) AS room
  FROM live WHERE NOT {IS_PAUSED.format(queue="live.queue")}
  GROUP BY queue
)
SELECT queue, bound, (
  SELECT count(*) FROM (
    SELECT FROM (SELECT DISTINCT unnest(live.agents) AS agent FROM live WHERE live.queue = capacity.queue) known
    CROSS JOIN LATERAL (
      SELECT FROM runs_run run
      WHERE {IS_READY} AND run.queue = capacity.queue AND run.agent = known.agent
      ORDER BY {BACKWARDS} LIMIT least(bound, room)) one
    WHERE NOT {IS_STOPPED.format(agent="known.agent")}
    LIMIT least(bound, room)) claimable) AS claimable
FROM capacity WHERE %(queue)s::text IS NULL OR queue = %(queue)s::text
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    queue: str
    bound: int
    claimable: int


def ring() -> list[Wanted]:
    """Ring for the claimable runs of every queue, within the bounds of the broker's queues; return the queues.

    If runs of one are claimable, look again in a second. Broker errors are logged, not raised: work waits in PostgreSQL.
    """
    lines = read_wanted(None)
    if wanted := [line for line in lines if line.claimable]:
        publish(wanted)
    return lines


def read_wanted(queue: str | None) -> list[Wanted]:
    """The queues (or this one) that are not paused and have a live worker."""
    return fetch_as(Wanted, WANTED, {"lease": settings.WAKEFUL_LEASE, "rings": RINGS_PER_CHILD, "queue": queue})


def publish(wanted: list[Wanted], *, most: int | None = None) -> bool:
    """Ring up to the bound, at most `most` times for each queue; True if the broker took the rings.

    It does not matter how much of a failed batch was delivered.
    """
    try:
        with broker.producer() as producer:
            for line in wanted:
                _publish(producer, line, most)
    except broker.BrokerAway:
        return False
    except Exception:
        # The claim loop and the courier must survive any error of a broker client.
        log.warning("doorbell.not_rung", exc_info=True)
        return False
    return True


def _publish(producer: Producer, line: Wanted, most: int | None) -> None:
    name = QUEUE_PREFIX + line.queue
    rings = min(line.claimable, line.bound) - depth(producer, name)
    if most is not None:
        rings = min(rings, most)
    if rings <= 0:
        return
    with producer.batch(max_size=rings):  # type: ignore[attr-defined]  # new in kombu 5.7, unknown to the stubs
        for _ in range(rings):
            send(producer, line.queue)


def send(producer: Producer, queue: str, **options: Any) -> None:
    current_app.send_task(
        DOORBELL, (queue, FORMAT), queue=QUEUE_PREFIX + queue, producer=producer, retry=False, **options
    )


def depth(producer: Producer, name: str) -> int:
    """The number of rings that wait in the broker."""
    channel: Any = producer.channel
    if broker.is_redis(producer):
        # Declaring a queue reads four lists in a transaction (measured: five times as long); rings are in one of them.
        return int(channel.client.llen(name))
    declared: Any = Queue(name, channel=channel).queue_declare()
    return int(declared.message_count)
