"""A thousand runs that each ask a model for ten seconds, on a worker with two children: how long they take together, the CPU and the
memory of all processes meanwhile. Besides what a turn of a long run costs, and the same runs without a caller. The model is an HTTP
server of this process."""

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
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
TURNS, OF_EACH = (10, 50, 200), 4
WITHOUT = 20  # runs without a caller; a thousand would take an hour and a half
WALL, MEMORY = 30.0, 1024.0  # aimed at: seconds, MiB
PATIENCE = 300.0
KINDS = ("web", "beat", "dispatcher", "sources", "worker")
CALLER = "caller"
DONE = "SELECT count(*) AS n FROM runs_run WHERE agent = 'bench.think' AND status = 'succeeded'"

Say = Callable[[str], None]


def section(say: Say, runs: int = RUNS, seconds: float = SECONDS) -> Iterator[str]:
    """Lines of Markdown."""
    with providing() as wire, own_stack({**SETTINGS, **wire.env}) as stack:
        for kind in (*KINDS, CALLER):
            stack.start(kind, concurrency=CONCURRENCY, wait=False)
        for process in stack.processes:
            process.wait_ready()
        say("thinking: to warm up")
        wire.script("warm", "done")
        think(stack, wire, "warm", 20)
        say(f"thinking: {runs:,} runs, a request of {seconds:g} s each")
        yield from many(stack, wire, runs, seconds)
        yield ""
        yield from by_turns(stack, wire, say)
        yield ""
        yield from without_caller(stack, wire, runs, seconds, say)


def many(stack: Stack, wire: Wire, runs: int, seconds: float) -> Iterator[str]:
    wire.script("think", Turn("done", faults=[Slow(seconds)]))
    most: defaultdict[str, float] = defaultdict(float)

    def look() -> None:
        now = memory(stack)
        for name, size in (*now.items(), ("together", sum(now.values()))):
            most[name] = max(most[name], size)

    before = cpu(stack)
    took, asked = think(stack, wire, "think", runs, look)
    used = spent(stack, before)
    model = used.pop("the model")
    yield "| runs | a request, s | wall, s | aimed at | requests made | paid | CPU, s | of the model's server, s |"
    yield "|---|---|---|---|---|---|---|---|"
    paid = sum(request.end == "answered" and request.script == "think" for request in wire.requests)
    reached = "reached" if took <= WALL else "missed"
    yield (
        f"| {runs:,} | {seconds:g} | {took:.1f} | ≤ {WALL:g}: {reached} | {asked:,} | {paid:,} | {sum(used.values()):.1f} | {model:.1f} |"
    )
    yield ""
    together = most.pop("together")
    reached = "reached" if together <= MEMORY else "missed"
    yield f"| | {' | '.join(used)} | together |"
    yield "|---" * (len(used) + 2) + "|"
    yield f"| CPU, ms a run | {' | '.join(f'{each / runs * 1e3:.1f}' for each in used.values())} | {sum(used.values()) / runs * 1e3:.1f} |"
    yield (
        f"| memory at most, MiB (PSS) | {' | '.join(f'{most[name]:.0f}' for name in used)} | {together:.0f} (≤ {MEMORY:,.0f}: {reached}) |"
    )


def by_turns(stack: Stack, wire: Wire, say: Say) -> Iterator[str]:
    yield "| turns of a run | runs | CPU of Wakeful and its servers, ms a turn |"
    yield "|---|---|---|"
    for turns in TURNS:
        say(f"thinking: runs of {turns} turns")
        wire.script(f"turns-{turns}", *[[Call("note", number=number)] for number in range(turns - 1)], "done")
        before = cpu(stack)
        think(stack, wire, f"turns-{turns}", OF_EACH)
        used = spent(stack, before)
        del used["the model"]
        yield f"| {turns} | {OF_EACH} | {sum(used.values()) / OF_EACH / turns * 1e3:.1f} |"


def without_caller(stack: Stack, wire: Wire, runs: int, seconds: float, say: Say) -> Iterator[str]:
    say(f"thinking: {WITHOUT} runs without a caller")
    for process in stack.processes:
        if process.kind == CALLER:
            process.stop()
    took, _ = think(stack, wire, "think", WITHOUT)
    yield (
        f"Without a caller {WITHOUT} runs took {took:.1f} s, two at a time; {runs:,} would take {took / WITHOUT * runs / 60:.0f} minutes "
        "(extrapolated)."
    )


def think(
    stack: Stack, wire: Wire, script: str, runs: int, look: Callable[[], None] = lambda: None
) -> tuple[float, int]:
    """Seconds until all have ended, and how many requests came."""
    before, asked = stack.query(DONE)[0]["n"], len(wire.requests)
    load = Load("bench.probes.load", ["think", runs, script], stack.env)
    began = looked = time.monotonic()
    load.go()
    while stack.query(DONE)[0]["n"] < before + runs:
        if time.monotonic() > began + PATIENCE:
            raise RuntimeError(f"after {PATIENCE:g} s: {stack.query(DONE)}")
        if time.monotonic() > looked + 2:
            looked = time.monotonic()
            look()
        time.sleep(0.25)
    return time.monotonic() - began, len(wire.requests) - asked


def programs(stack: Stack) -> Iterator[tuple[str, Sequence[psutil.Process]]]:
    """The processes of Wakeful, and those of its servers."""
    for process in stack.processes:
        if process.is_alive():
            yield process.kind, family(process.pid)
    for name, server in (("PostgreSQL", stack.servers.postgres), ("Valkey", stack.servers.valkey)):
        if server and server.process:
            yield name, family(server.process.pid)


def family(pid: int) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        return [parent, *parent.children(recursive=True)]
    return []


def memory(stack: Stack) -> dict[str, float]:
    """MiB by program; pages that processes share count once."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, processes in programs(stack):
        for process in processes:
            with suppress(psutil.Error):
                found[name] += process.memory_full_info().pss / 2**20
    return found


def cpu(stack: Stack) -> dict[str, float]:
    """Seconds by program, those of ended children among them; "the model": of this process."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, processes in programs(stack):
        for process in processes:
            with suppress(psutil.Error):
                found[name] += sum(process.cpu_times()[:4])
    found["the model"] = time.process_time()
    return found


def spent(stack: Stack, before: dict[str, float]) -> dict[str, float]:
    return {name: seconds - before.get(name, 0.0) for name, seconds in cpu(stack).items()}


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
