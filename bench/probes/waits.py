"""What the product's own calls touch while runs wait, in a process of its own: `FIRST`, the first number that an event is
still waited for by; JSON to standard output."""

import json
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any

from bench.ground.pace import await_word
from bench.probes.load import incoming
from bench.probes.scale import TIMES, WARM, Probe
from runs import waits
from runs.chores import timers
from runs.executor import execute
from runs.processes import lease
from triggers.accept import accept
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules


def look(probe: Probe, rules: Rules, number: int, *, warm: bool) -> None:
    """One of everything; the run that the event wakes goes on to its end, and one that begins goes on to its wait."""

    def measure(what: str, call: Any) -> Any:
        return probe.measure_unless(warm, what, call)

    def dispatched(what: str, type: str, data: Any) -> None:
        accept([replace(incoming(type, str(time.time_ns())), data=data)])
        batch = measure(f"dispatch of an event {what}", partial(dispatch, rules))
        assert batch.dispatched == 1

    dispatched("of a type that no run waits for", "bench.unheard", {"number": number})
    dispatched("that ends no wait of its type", "bench.awaited", {"number": 0})
    dispatched("that ends one wait", "bench.awaited", {"number": number})
    woken = measure("claim of the woken run", probe.claim)
    assert woken.agent == "bench.waiter"
    measure("its replay and end", partial(execute, woken))
    dispatched("that starts a run", "bench.listener", {"count": 1, "name": "waits", "tells": False})
    measure("its run up to its wait", partial(execute, measure("claim", probe.claim)))
    measure("look of the timers", timers.read_run_timers)
    measure("look for waits that are over", partial(waits.end_due, 500))


def main() -> None:
    first = int(sys.argv[1])
    probe, rules = Probe(), Rules()
    await_word()
    for number in range(WARM + TIMES):
        look(probe, rules, first + 3 * number, warm=number < WARM)
    lease.close_row(probe.worker, "measured")
    json.dump(probe.summaries(), sys.stdout)


if __name__ == "__main__":
    main()
