"""What the statements of a tick touch, in a process of its own; JSON to standard output."""

import json
import sys
from functools import partial

from bench.ground.pace import await_word
from bench.probes.scale import TIMES, WARM, Probe
from runs.processes import lease
from triggers.schedules.firing import due_schedules

BATCH = 20


def fire(probe: Probe, limit: int, *, warm: bool) -> None:
    """The next that come due, at the instant at which they do."""
    look = probe.measure_unless(warm, "look", due_schedules.find_due)
    assert look.next_due
    fired = probe.measure_unless(warm, f"fire of {limit}", partial(due_schedules.fire_due, look.next_due, limit))
    assert fired == limit, fired


def main() -> None:
    probe = Probe()
    await_word()
    for number in range(WARM + 12):
        fire(probe, BATCH, warm=number < WARM)
    for number in range(WARM + TIMES):
        fire(probe, 1, warm=number < WARM)
    lease.close_row(probe.worker, "measured")
    json.dump(probe.summaries(), sys.stdout)


if __name__ == "__main__":
    main()
