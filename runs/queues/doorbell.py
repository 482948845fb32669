"""Doorbells. A Celery message says "queue Q has work", nothing more: losing one costs a second, a spare one finds nothing."""

from dataclasses import dataclass
from typing import Any

import structlog
from celery import current_app
from django.conf import settings
from kombu import Producer, Queue

from runs.db.ready import IS_PAUSED, IS_READY, PLACE
from runs.db.sql import fetch
from runs.network import broker
from runs.processes.alive import TAKES_RUNS

log = structlog.get_logger(__name__)

DOORBELL = "runs.doorbell"
FORMAT = 1  # of the doorbell message, for rolling upgrades
# Looking and ringing are two steps, and others ring in between. All fill a queue up to one ring a child, and a child adds
# no more than one itself: what a dispatcher and all children ring at the same moment is within two for each child.
RINGS_PER_CHILD = 1
QUEUE_PREFIX = "runs."

# Only runs some live worker may claim now count, and no more of them than can be rung for: agent by agent, the last ones first.
# Entries of claimed runs, which an old snapshot keeps, stand in front.
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
    LIMIT least(bound, room)) claimable)
FROM capacity WHERE %(queue)s::text IS NULL OR queue = %(queue)s::text
"""  # noqa: S608  (our own parts)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    queue: str
    bound: int
    claimable: int


def ring(queue: str | None = None) -> bool:
    """Ring for the claimable runs of every queue (or of one), keeping the broker's queues within their bound.

    True: runs are waiting, so look again in a second. Broker errors are logged, never raised: work waits in PostgreSQL.
    """
    wanted = [line for line in look(queue) if line.claimable]
    if wanted:
        publish(wanted)
    return bool(wanted)


def look(queue: str | None) -> list[Wanted]:
    found = fetch(WANTED, {"lease": settings.WAKEFUL_LEASE, "rings": RINGS_PER_CHILD, "queue": queue})
    return [Wanted(queue=name, bound=bound, claimable=claimable) for name, bound, claimable in found]


def publish(wanted: list[Wanted], *, most: int | None = None) -> bool:
    """Ring up to the bound, or no more than `most` times for each queue; True if the broker took the rings.

    Delivery of a batch that failed half-way is unknown, and does not matter.
    """
    try:
        with broker.producer() as producer:
            for line in wanted:
                _publish(producer, line, most)
    except broker.BrokerAway:
        return False
    except Exception:
        # One process boundary: whatever a broker client raises, the claim loop and the courier go on.
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
            current_app.send_task(DOORBELL, (line.queue, FORMAT), queue=name, producer=producer, retry=False)


def depth(producer: Producer, name: str) -> int:
    """How many rings wait in the broker."""
    channel: Any = producer.channel
    if broker.is_redis(producer):
        # Declaring a queue asks for four lists in a transaction (measured: five times as long); rings lie in one.
        return int(channel.client.llen(name))
    declared: Any = Queue(name, channel=channel).queue_declare()
    return int(declared.message_count)
