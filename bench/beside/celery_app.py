"""The peer: a Celery app as its documentation sets one up, without Django, results or retries."""

import os
import time

import redis
from celery import Celery

from bench.ground.names import PEER_DRAINED, PEER_QUEUE, PEER_SEEN

BROKER = os.environ["BENCH_BROKER"]

app = Celery("peer", broker=BROKER)
app.conf.task_default_queue = PEER_QUEUE
app.conf.task_ignore_result = True
app.conf.broker_connection_retry_on_startup = True

store = redis.Redis.from_url(BROKER)


@app.task
def noop() -> None:
    pass


@app.task
def last() -> None:
    store.rpush(PEER_DRAINED, 1)


@app.task
def first_line(number: int) -> None:
    now = time.time()
    store.rpush(PEER_SEEN, f"{number} {now!r}")
