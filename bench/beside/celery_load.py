"""Load for the peer, in a process of its own: `fill COUNT` or `send COUNT RATE`; what it saw goes to standard output."""

import json
import sys
import time

from kombu import Producer

from bench.beside import celery_app as peer
from bench.ground.names import PEER_QUEUE
from bench.ground.pace import await_word, paced

FILLED = "peer.filled"


def fill(count: int) -> dict[str, float]:
    """Put tasks into a list beside the queue; at a word from standard input the worker has them all at once."""
    with peer.app.producer_pool.acquire(block=True) as producer:
        _publish(producer, count)
    await_word()
    began_at = time.time()
    peer.store.rename(FILLED, PEER_QUEUE)
    return {"began_at": began_at}


def _publish(producer: Producer, count: int) -> None:
    with producer.batch(max_size=1000):  # type: ignore[attr-defined]  # new in kombu 5.7, unknown to the stubs
        for _ in range(count):
            peer.noop.apply_async(queue=FILLED, producer=producer, retry=False)
        peer.last.apply_async(queue=FILLED, producer=producer, retry=False)


def send(count: int, rate: float) -> dict[int, tuple[float, float]]:
    """For each task, when it was called and when the broker had it."""
    sent = {}
    for number in paced(count, rate):
        called_at = time.time()
        peer.first_line.delay(number)
        sent[number] = (called_at, time.time())
    return sent


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    print(json.dumps(fill(int(arguments[0])) if command == "fill" else send(int(arguments[0]), float(arguments[1]))))
