"""DBOS Transact, as its documentation sets it up: `worker`, `fill COUNT` or `send COUNT RATE`."""

import json
import os
import sys
import threading
import time

import redis
import sqlalchemy
from dbos import DBOS, DBOSClient, EnqueueOptions

from bench.ground.names import PEER_DRAINED, PEER_SEEN
from bench.ground.pace import await_word, paced

DATABASE = os.environ["BENCH_DATABASE"]
QUEUE = "bench"
POLL = 0.05  # seconds; its own default is 1: a first line would come half a second later
VERSION = "1"

store = redis.Redis.from_url(os.environ["BENCH_BROKER"])


@DBOS.step()
def nothing() -> None:
    pass


@DBOS.workflow(name="noop")
def noop() -> None:
    """Of one step: what a step did is what it does not do again."""
    nothing()


@DBOS.workflow(name="last")
def last() -> None:
    store.rpush(PEER_DRAINED, 1)


@DBOS.workflow(name="first_line")
def first_line(number: int) -> None:
    now = time.time()
    store.rpush(PEER_SEEN, f"{number} {now!r}")


def work(name: str) -> None:
    DBOS(
        config={
            "name": "bench",
            "system_database_url": DATABASE,
            "application_version": VERSION,
            "executor_id": name,
            "log_level": "WARNING",
        }
    )
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=POLL)
    threading.Event().wait()


def options(workflow: str) -> EnqueueOptions:
    return {"queue_name": QUEUE, "workflow_name": workflow, "app_version": VERSION}


def fill(client: DBOSClient, count: int) -> dict[str, float]:
    """Workflows in one transaction, committed at a word from standard input."""
    with sqlalchemy.create_engine(DATABASE).begin() as connection:
        for _ in range(count):
            client.enqueue_in_transaction(connection, options("noop"))
        client.enqueue_in_transaction(connection, options("last"))
        await_word()
        began_at = time.time()
    return {"began_at": began_at}


def send(client: DBOSClient, count: int, rate: float) -> dict[int, tuple[float, float]]:
    """For each workflow, when it was enqueued and when that was committed."""
    sent = {}
    for number in paced(count, rate):
        called_at = time.time()
        client.enqueue(options("first_line"), number)
        sent[number] = (called_at, time.time())
    return sent


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "worker":
        work(arguments[0])
    else:
        client = DBOSClient(system_database_url=DATABASE)
        saw = (
            fill(client, int(arguments[0]))
            if command == "fill"
            else send(client, int(arguments[0]), float(arguments[1]))
        )
        print(json.dumps(saw))
        sys.stdout.flush()
        os._exit(0)  # its pools have threads of their own
