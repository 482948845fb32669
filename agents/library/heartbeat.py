from datetime import datetime, timedelta
from typing import Any

from agents import AgentRun, agent, on

FASTEST, SLOWEST = timedelta(minutes=1), timedelta(minutes=15)


@agent("heartbeat", triggers=[on.heartbeat("1m", pace=("1m", "15m"))], retries=0)
def heartbeat(run: AgentRun) -> dict[str, Any]:
    """Checks that it wakes on time: less and less often while it does, every minute again after a miss, which it reports."""
    beat_at = run.event.time
    pulse = run.state.get("beat") or {}
    last, due = (datetime.fromisoformat(pulse[name]) if pulse else beat_at for name in ("last", "due"))
    missed = missed_beats(due, beat_at)
    if missed:
        run.notify(f"No wake between {due:%Y-%m-%d %H:%M} and {beat_at:%Y-%m-%d %H:%M} UTC: {missed} beats missed.")
    pace = FASTEST if missed or not pulse else min(2 * timedelta(seconds=pulse["pace"]), SLOWEST)
    run.next_check(pace, "something was missed" if missed else "all is well")
    latest = max(last, beat_at)
    run.state.set(
        "beat", {"last": latest.isoformat(), "due": (latest + pace).isoformat(), "pace": pace.total_seconds()}
    )
    return {"beat": beat_at.isoformat(), "missed": missed, "next_check": pace.total_seconds()}


def missed_beats(due: datetime, beat_at: datetime) -> int:
    """The whole minutes by which a beat was late; zero if it was early."""
    return max((beat_at - due) // FASTEST, 0)
