from datetime import datetime, timedelta
from typing import Any

from agents import AgentRun, agent, on

BEAT = timedelta(minutes=1)


@agent("heartbeat", triggers=[on.cron("* * * * *")], retries=0)
def heartbeat(run: AgentRun) -> dict[str, Any]:
    """Keeps a pulse, and tells a person when minutes went by in which nothing woke."""
    beat_at = run.event.time
    pulse = run.state.get("pulse")
    last = datetime.fromisoformat(pulse) if pulse else beat_at
    missed = missed_beats(last, beat_at)
    if missed:
        run.notify(
            f"Nothing woke between {last:%Y-%m-%d %H:%M} and {beat_at:%Y-%m-%d %H:%M} UTC: {missed} beats missed."
        )
    run.state.set("pulse", max(last, beat_at).isoformat())
    return {"beat": beat_at.isoformat(), "missed": missed}


def missed_beats(last: datetime, beat_at: datetime) -> int:
    """How many whole beats lie between two; none if they are in the wrong order."""
    return max((beat_at - last) // BEAT - 1, 0)
