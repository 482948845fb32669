"""Procrastinate, as its documentation sets it up."""

import os
import time

import procrastinate
import redis

from bench.ground.names import PEER_DRAINED, PEER_SEEN

DATABASE = os.environ["BENCH_DATABASE"]

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=DATABASE))
store = redis.Redis.from_url(os.environ["BENCH_BROKER"])


@app.task
async def noop() -> None:
    pass


@app.task
async def last() -> None:
    store.rpush(PEER_DRAINED, 1)


@app.task
async def first_line(number: int) -> None:
    now = time.time()
    store.rpush(PEER_SEEN, f"{number} {now!r}")
