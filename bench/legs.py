"""The CPU of each leg of a run, of its process and of its session in PostgreSQL, without waiting."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from statistics import median

from bench.ground.own_stack import own_stack
from bench.ground.processes import SETTINGS
from tests.support.stack import ROOT

ROUNDS = 3


def section(say: Callable[[str], None]) -> Iterator[str]:
    """Lines of Markdown."""
    rounds = []
    with own_stack({**SETTINGS, "WAKEFUL_LEASE": "1h"}) as stack:
        for number in range(ROUNDS):
            say(f"legs: round {number + 1} of {ROUNDS}")
            probe = [sys.executable, "-m", "bench.probes.legs"]
            said = subprocess.run(probe, env=stack.env, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout
            rounds.append(json.loads(said.splitlines()[-1]))
    yield "| leg, CPU in µs | Python | PostgreSQL | together |"
    yield "|---|---|---|---|"
    for leg in rounds[0]:
        python, session = (median(found[leg][which] for found in rounds) * 1e6 for which in (0, 1))
        yield f"| {leg} | {python:,.0f} | {session:,.0f} | {python + session:,.0f} |"
