"""Where the time of a run goes: CPU by process, time by statement in PostgreSQL, Python by function in a child."""

import re
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import psycopg

from bench.ground.drain import drain_wakeful
from bench.ground.processes import Ground, cpu_seconds, ground

COUNT = 2000
SECONDS = 12  # that the sampler looks
STATEMENT = re.compile(r"duration: ([\d.]+) ms  (?:parse|bind|execute|statement)[^:]*: *(.*)")
OURS = re.compile(r"^(.+) \(((?:runs|triggers|agents)/\w+\.py):\d+\)$")
SHOWN = 12


def section(say: Callable[[str], None]) -> Iterator[str]:
    """Lines of Markdown."""
    with ground() as here:
        drain_wakeful(here, COUNT // 2)
        say("profile: CPU by process")
        yield from cpu_table(here)
        yield ""
        say("profile: statements")
        yield from statement_table(here)
        yield ""
        say("profile: Python")
        yield from function_table(here)


def cpu_table(here: Ground) -> Iterator[str]:
    before = cpu_by_process(here)
    drain_wakeful(here, COUNT)
    after = cpu_by_process(here)
    used = {name: (after[name] - before[name]) / COUNT * 1e6 for name in after}
    yield f"| CPU per no-op, µs | {' | '.join(used)} | together |"
    yield "|---" * (len(used) + 2) + "|"
    yield f"| | {' | '.join(f'{each:,.0f}' for each in used.values())} | {sum(used.values()):,.0f} |"


def cpu_by_process(here: Ground) -> dict[str, float]:
    pid = {process.kind: process.pid for process in here.stack.processes}
    postgres, valkey = here.server_pids
    parent = sum(psutil.Process(pid["worker"]).cpu_times()[:2])
    return {
        "dispatcher": cpu_seconds([pid["dispatcher"]]),
        "worker's parent": parent,
        "its children": cpu_seconds([pid["worker"]]) - parent,
        "PostgreSQL": cpu_seconds([postgres]),
        "Valkey": cpu_seconds([valkey]),
    }


def statement_table(here: Ground) -> Iterator[str]:
    """As PostgreSQL writes them down: binding (and planning, where it plans again) and executing, without the network."""
    set_logging(here, "0")
    begins_at = here.postgres.log.stat().st_size
    drain_wakeful(here, COUNT)
    said = here.postgres.log.read_bytes()[begins_at:].decode(errors="replace")
    set_logging(here, "-1")
    times: dict[str, float] = defaultdict(float)
    for duration, statement in STATEMENT.findall(re.sub(r": *\n\t?", ": ", said)):
        times[" ".join(re.sub(r"\s+", " ", statement).split()[:6])] += float(duration)
    yield "| statement | µs per no-op |"
    yield "|---|---|"
    for statement, milliseconds in Counter(times).most_common(SHOWN):
        yield f"| `{statement} …` | {milliseconds / COUNT * 1e3:,.0f} |"


def set_logging(here: Ground, least: str) -> None:
    with psycopg.connect(here.stack.database_url, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET log_min_duration_statement = {least}")
        connection.execute("SELECT pg_reload_conf()")
    time.sleep(0.5)  # the sessions take it up one by one


def function_table(here: Ground) -> Iterator[str]:
    """Samples of a child while it holds the interpreter; what waits for PostgreSQL does not count."""
    worker = next(process for process in here.stack.processes if process.kind == "worker")
    child = psutil.Process(worker.pid).children()[0].pid
    samples = here.stack.folder / "samples"
    sampler = subprocess.Popen(
        [str(Path(sys.executable).with_name("py-spy")), "record", "--gil", "-r", "250", "-d", str(SECONDS), "-f", "raw"]
        + ["-o", str(samples), "-p", str(child)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while sampler.poll() is None:
        drain_wakeful(here, COUNT)
    if sampler.returncode:
        yield "(py-spy may not look into processes here: no samples.)"
        return
    total, within = 0, Counter[str]()
    for line in samples.read_text().splitlines():
        stack, _, count = line.rpartition(" ")
        total += int(count)
        for function in {" ".join(found.groups()) for frame in stack.split(";") if (found := OURS.match(frame))}:
            within[function] += int(count)
    yield f"| function of ours, and all it calls | share of a child's Python ({total} samples) |"
    yield "|---|---|"
    for function, samples_within in within.most_common(SHOWN):
        yield f"| `{function}` | {samples_within / max(total, 1):.0%} |"
