"""Heartbeat agents: one whose gate follows a number in its event, and one whose gate is always quiet."""

import signal
import time

from agents import Fire, GateRun, Heartbeat, Quiet


def failed_runs() -> int:
    """How many runs have failed."""
    return 3


def newest_backup() -> str:
    """When the newest backup was made."""
    raise ConnectionError("the backup server does not answer")


def changed(run: GateRun) -> Fire | Quiet:
    data = run.event.data
    if isinstance(data, dict) and data.get("hangs"):
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
        time.sleep(600)
    newest = data.get("newest") if isinstance(data, dict) else None
    if newest is None or newest == run.last:
        return Quiet(f"nothing newer than {run.last}")
    return Fire(f"number {newest} is new", state=newest)


def never(run: GateRun) -> Quiet:
    return Quiet("nothing to do")


Heartbeat("keeper", every="1h", tools=[failed_runs, newest_backup], gate=changed, pause_after=0)
Heartbeat("idler", every="1s", gate=never)
