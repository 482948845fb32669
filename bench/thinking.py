"""A thousand runs that each ask a model for ten seconds, on a worker with two children: how long they take together, and the memory of
all processes of Wakeful meanwhile. The model is an HTTP server of this process."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import psutil

from bench.ground.own_stack import own_stack
from bench.ground.processes import CONCURRENCY, Load
from tests.support.stack import Stack
from tests.support.wire import Call, Slow, Turn, Wire, providing

SETTINGS = {
    "WAKEFUL_APPS": "bench",
    "WAKEFUL_LOG_LEVEL": "WARNING",
    "ALLOWED_HOSTS": "localhost",
    "WAKEFUL_MODEL": "openai-chat:gpt-4o",
}
RUNS, SECONDS = 1_000, 10.0
TURNS = (10, 50, 200)
PATIENCE = 300.0
KINDS = ("web", "beat", "dispatcher", "sources", "worker", "caller")
DONE = "SELECT count(*) AS n FROM runs_run WHERE agent = 'bench.think' AND status = 'succeeded'"

Say = Callable[[str], None]


def section(say: Say, runs: int = RUNS, seconds: float = SECONDS) -> Iterator[str]:
    """Lines of Markdown."""
    with providing() as wire, own_stack({**SETTINGS, **wire.env}) as stack:
        for kind in KINDS:
            stack.start(kind, concurrency=CONCURRENCY, wait=False)
        for process in stack.processes:
            process.wait_ready()
        say("thinking: to warm up")
        wire.script("warm", "done")
        think(stack, wire, "warm", 20, lambda: None)
        say(f"thinking: {runs:,} runs, a request of {seconds:g} s each")
        wire.script("think", Turn("done", faults=[Slow(seconds)]))
        most = 0.0

        def look() -> None:
            nonlocal most
            most = max(most, memory(stack))

        before = cpu(stack)
        took, asked = think(stack, wire, "think", runs, look)
        yield "| runs | a request, s | wall, s | requests | CPU of Wakeful, ms a run | memory at most, MiB (PSS) |"
        yield "|---|---|---|---|---|---|"
        yield f"| {runs:,} | {seconds:g} | {took:.1f} | {asked:,} | {(cpu(stack) - before) / runs * 1e3:.1f} | {most:.0f} |"
        yield ""
        yield "| turns of a run | runs | CPU of Wakeful, ms a turn |"
        yield "|---|---|---|"
        for turns in TURNS:
            say(f"thinking: runs of {turns} turns")
            wire.script(f"turns-{turns}", *[[Call("note", number=number)] for number in range(turns - 1)], "done")
            before = cpu(stack)
            think(stack, wire, f"turns-{turns}", 4, lambda: None)
            yield f"| {turns} | 4 | {(cpu(stack) - before) / 4 / turns * 1e3:.1f} |"


def think(stack: Stack, wire: Wire, script: str, runs: int, look: Callable[[], None]) -> tuple[float, int]:
    """Seconds until all have ended, and how many requests came."""
    before, asked = stack.query(DONE)[0]["n"], len(wire.requests)
    load = Load("bench.probes.load", ["think", runs, script], stack.env)
    began = time.monotonic()
    load.go()
    while stack.query(DONE)[0]["n"] < before + runs:
        if time.monotonic() > began + PATIENCE:
            raise RuntimeError(f"after {PATIENCE:g} s: {stack.query(DONE)}")
        look()
        time.sleep(0.5)
    return time.monotonic() - began, len(wire.requests) - asked


def processes(stack: Stack) -> Iterator[psutil.Process]:
    for process in stack.processes:
        with suppress(psutil.NoSuchProcess):
            yield psutil.Process(process.pid)
        yield from process.children()


def memory(stack: Stack) -> float:
    """MiB; pages that processes share count once."""
    found = 0
    for process in processes(stack):
        with suppress(psutil.Error):
            found += process.memory_full_info().pss
    return found / 2**20


def cpu(stack: Stack) -> float:
    found = 0.0
    for process in processes(stack):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.thinking", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    options = parser.parse_args()
    say = lambda what: print(f"… {what}", file=sys.stderr, flush=True)  # noqa: E731
    print(f"load average {os.getloadavg()[0]:.1f} before")
    for line in section(say, options.runs, options.seconds):
        print(line, flush=True)


if __name__ == "__main__":
    main()
