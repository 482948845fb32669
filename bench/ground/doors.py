"""Our webhook door beside a bare DRF view: the same server on the same PostgreSQL, the bare view in four threads, ours with its
event loop and threads as they are shipped."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bench.ground.processes import Ground, Load, bare_env, new_database, start
from config.stack import children
from tests.support.stack import ROOT, eventually, free_port

GRANIAN = ["-m", "granian", "--interface", "wsgi", "--blocking-threads", "4", "--log-level", "error", "--port"]


@contextmanager
def doors(ground: Ground) -> Iterator[tuple[Callable[[int], float], Callable[[int], float]]]:
    """Two functions that take so many deliveries and return how many a second: of the bare view, and of ours.

    Our dispatcher is stopped meanwhile: what is measured is the way in alone.
    """
    env = {**bare_env(), "BENCH_DATABASE": new_database(ground.postgres, "bare")}
    subprocess.run([sys.executable, "-m", "bench.beside.bare_view", "migrate"], env=env, cwd=ROOT, check=True)
    port = free_port()
    server = start(ground.stack.folder, "bare", [*GRANIAN, str(port), "bench.beside.bare_view:application"], env)
    subprocess.run([sys.executable, "-m", "bench.probes.load", "open-door"], env=ground.stack.env, cwd=ROOT, check=True)
    dispatcher = next(process for process in ground.stack.processes if process.kind == "dispatcher")

    def ours(count: int) -> float:
        dispatcher.freeze()
        try:
            rate = deliveries(ground.stack.port, count)
        finally:
            dispatcher.thaw()
        eventually(
            lambda: not ground.stack.query("SELECT 1 AS one FROM triggers_event WHERE dispatched_at IS NULL LIMIT 1"),
            60,
        )
        return rate

    try:
        eventually(lambda: listens(port))
        yield (lambda count: deliveries(port, count)), ours
    finally:
        children.kill_group(server)


def deliveries(port: int, count: int, *, cookie: bool = False) -> float:
    """How many a second; each is answered before the next one of its connection."""
    rate: float = Load("bench.probes.accepts", [port, count, int(cookie)], bare_env()).go()["rate"]
    return rate


def waits_of(port: int, count: int, rate: float, *, cookie: bool = False) -> Sequence[float]:
    """The seconds that each took from when it was due, `rate` of them a second, whether others are answered or not."""
    waits: Sequence[float] = Load("bench.probes.accepts", [port, count, int(cookie), rate], bare_env()).go()["waits"]
    return waits


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
