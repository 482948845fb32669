"""A worker of Procrastinate, or load for it: `migrate`, `worker`, `fill COUNT` or `send COUNT RATE`."""

import asyncio
import json
import sys
import time

import procrastinate
import psycopg

from bench.beside import procrastinate_app as peer
from bench.ground.pace import await_word, paced

JOBS_AT_ONCE = 10  # of one worker; with one at a time it drains more slowly


async def work() -> None:
    async with peer.app.open_async():
        await peer.app.run_worker_async(concurrency=JOBS_AT_ONCE, install_signal_handlers=False)


def fill(count: int) -> dict[str, float]:
    """Jobs in one transaction, committed at a word from standard input."""
    with psycopg.connect(peer.DATABASE) as connection:
        peer.noop.configure(connection=connection).batch_defer(*[{} for _ in range(count)])
        peer.last.configure(connection=connection, priority=-1).defer()
        await_word()
        began_at = time.time()
    return {"began_at": began_at}


def send(count: int, rate: float) -> dict[int, tuple[float, float]]:
    """For each job, when it was deferred and when that was committed."""
    sent = {}
    for number in paced(count, rate):
        called_at = time.time()
        peer.first_line.defer(number=number)
        sent[number] = (called_at, time.time())
    return sent


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    if command == "worker":
        asyncio.run(work())
    else:
        with (
            peer.app.replace_connector(procrastinate.SyncPsycopgConnector(conninfo=peer.DATABASE)) as loading,
            loading.open(),
        ):
            if command == "migrate":
                loading.schema_manager.apply_schema()
            else:
                saw = fill(int(arguments[0])) if command == "fill" else send(int(arguments[0]), float(arguments[1]))
                print(json.dumps(saw))
