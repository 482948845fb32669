from datetime import timedelta
from typing import Any

from agents import AgentRun, Fire, GateRun, Quiet, agent, on
from agents.kernel.durations import in_words
from agents.kernel.installation import Backlog, facts

LONG = timedelta(minutes=5)
OVER = LONG / 2  # shorter than LONG, so that a wait of about LONG is not reported again and again
WORSE = 3  # times as many waiting runs as at the last report


def look(run: GateRun) -> Fire | Quiet:
    """Fires when runs of a queue wait long, when that gets much worse, and when it is over."""
    told: dict[str, int] = run.last or {}
    late = {one.queue: one for one in facts.backlog() if is_late(one, is_told=one.queue in told)}
    news = [name for name, one in late.items() if one.waiting > WORSE * told.get(name, 0)]
    over = sorted(told.keys() - late.keys())
    if not news and not over:
        return Quiet("runs wait long, as already reported" if late else "no run waits long")
    state = {name: one.waiting if name in news else told[name] for name, one in late.items()}
    return Fire("runs wait long" if news else "the backlog is over", data={"news": news, "over": over}, state=state)


def is_late(backlog: Backlog, *, is_told: bool) -> bool:
    return not backlog.is_paused and backlog.oldest >= (OVER if is_told else LONG)


# The most urgent of all: it waits behind no run that it speaks of.
@agent("backlog-heartbeat", triggers=[on.heartbeat("5m", catch_up="skip")], gate=look, priority=0, retries=0)
def backlog_heartbeat(run: AgentRun) -> Any:
    """Notifies people when runs wait for longer than five minutes for a worker, and when that is over."""
    found = run.fired.data if run.fired else {"news": [], "over": []}
    now = {one.queue: one for one in facts.backlog()}
    for name in found["news"]:
        run.notify(told(now[name]) if name in now else f"Runs waited long in queue {name}.", topic=f"backlog:{name}")
    for name in found["over"]:
        run.notify(f"No run waits long in queue {name} any more.", topic=f"backlog:{name}")
    return found


def told(backlog: Backlog) -> str:
    are, serve = (
        "is" if backlog.running == 1 else "are",
        "process serves" if backlog.children == 1 else "processes serve",
    )
    serving = f"{backlog.children} {serve} it" if backlog.children else "no worker serves it"
    runs = "1 run waits" if backlog.waiting == 1 else f"{backlog.waiting} runs wait"
    return (
        f"{runs} in queue {backlog.queue}, the longest for {in_words(backlog.oldest)}; "
        f"{backlog.running} {are} running, and {serving}."
    )
