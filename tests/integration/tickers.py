"""Tickers that race through simulated time and are killed all the while:
`python -m tests.integration.tickers END STEP STRIKES SEED`.

Each is a process with a connection of its own that fires what is due by the clock in the table `simulated`, and sets
that clock to the next due time (rounded up to STEP seconds) once nothing older is left. STRIKES times a second one of
them is killed, at any moment or at a failpoint, and another takes its place. What happened is printed as JSON.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import django

AT_ONCE = 3
BATCH = 5  # schedules; small, so that they share what is due at one instant
POINTS = ("before_settle_commit", "before_tick_commit", "after_tick_commit")
NOW = "SELECT now FROM simulated"
GO_ON = """
UPDATE simulated SET now = least(next.due, %(end)s::timestamptz)
FROM (SELECT date_bin(%(step)s::interval, min(due_at) + %(step)s::interval - interval '1 us', 'epoch') AS due
      FROM triggers_schedule WHERE due_at IS NOT NULL AND NOT stale) next
WHERE simulated.now < least(next.due, %(end)s::timestamptz)
"""


def tick_through(end: datetime, step: float) -> None:
    """Fire whatever is due up to an instant, together with the others."""
    from triggers.schedules.firing import due_schedules

    while due_schedules.find_due().has_stale:
        due_schedules.settle(clock(), BATCH)
    while (now := clock()) < end or is_anything_due(end):
        while due_schedules.fire_due(now, BATCH):
            pass
        if not go_on(end, step):
            time.sleep(0.01)  # another one holds what is due


def clock() -> datetime:
    from runs.db.sql import fetch

    now: datetime = fetch(NOW)[0][0]
    return now


def is_anything_due(now: datetime) -> bool:
    from triggers.schedules.firing import due_schedules

    next_due = due_schedules.find_due().next_due
    return next_due is not None and next_due <= now


def go_on(end: datetime, step: float) -> bool:
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute(GO_ON, {"end": end, "step": f"{step} s"})
        return bool(cursor.rowcount)


def main() -> int:
    end, step = datetime.fromisoformat(sys.argv[1]), float(sys.argv[2])
    strikes, chance = float(sys.argv[3]), random.Random(sys.argv[4])
    points = Path(os.environ["WAKEFUL_FAILPOINTS"])
    django.setup()
    began = time.monotonic()
    alive = {start(tick_through, end, step) for _ in range(AT_ONCE)}
    seen: Counter[str] = Counter()
    next_strike = began + chance.expovariate(strikes)
    while alive:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid:
            alive.remove(pid)
            if status == signal.SIGKILL:
                seen["killed"] += 1
                alive.add(start(tick_through, end, step))
            elif status:
                for other in alive:
                    os.kill(other, signal.SIGKILL)
                return 1
        elif time.monotonic() < next_strike:
            time.sleep(0.002)
        else:
            seen[strike(alive, points, chance)] += 1
            next_strike += chance.expovariate(strikes)
    print(json.dumps({**seen, "seconds": round(time.monotonic() - began, 1)}))
    return 0


def start(work: Callable[..., None], *arguments: object) -> int:
    """A process of its own; nothing of the database was opened before this fork."""
    if pid := os.fork():
        return pid
    try:
        work(*arguments)
        os._exit(0)
    finally:
        sys.excepthook(*sys.exc_info())
        os._exit(1)


def strike(alive: set[int], points: Path, chance: random.Random) -> str:
    """Kill one of them now, or whichever comes to a failpoint next; what was done."""
    place = chance.choice(["anywhere", *POINTS])
    if place == "anywhere":
        os.kill(chance.choice(sorted(alive)), signal.SIGKILL)
    else:
        waiting = points / f".{place}"
        waiting.write_text("kill")
        waiting.rename(points / place)
    return place


if __name__ == "__main__":
    sys.exit(main())
