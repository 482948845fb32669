"""The webhook door, a DRF view, beside a plain Django view around the same code: one process, one delivery each in turns."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator

from bench.ground.own_stack import own_stack
from tests.support.stack import ROOT

WARM_UP, DELIVERIES = 300, 2_000  # through each of the two views
ROOM = {"WAKEFUL_MAX_BACKLOG": "1000000", "WAKEFUL_MAX_SOURCE_BACKLOG": "1000000"}  # nothing dispatches meanwhile


def section(say: Callable[[str], None]) -> Iterator[str]:
    """Lines of Markdown."""
    with own_stack(ROOM) as stack:
        say("door: in turns")
        done = subprocess.run(
            [sys.executable, "-m", "bench.probes.door", str(WARM_UP), str(DELIVERIES)],
            env=stack.env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True,
        )  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    yield "| µs a delivery | plain view | DRF view | DRF / plain |"
    yield "|---|---|---|---|"
    for name, label in (("wall", "wall clock, median"), ("cpu", "CPU of the web process, median")):
        plain, drf = found["plain"][name], found["drf"][name]
        yield f"| {label} | {plain:,.0f} | {drf:,.0f} | {drf / plain:.3f} |"
