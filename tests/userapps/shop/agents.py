"""Agents as a user writes them; each leaves an Effect row, by which tests count what really happened."""

import socket
import time
from typing import Any

from agents import AgentRun, agent, on

from .models import Effect, FixedSwitch, Shared


def leave_effect(run: AgentRun) -> None:
    Effect.objects.create(event=run.event.id, agent=run.agent, trigger=run.trigger, run=run.id)


@agent("effect", triggers=[on.event("effect.*")])
def effect(run: AgentRun) -> dict[str, Any]:
    """Leaves one effect, and emits an event about it."""
    leave_effect(run)
    run.emit("effected", {"event": str(run.event.id), "by": run.trigger})
    return {"data": run.event.data}


@agent("effect-b", triggers=[on.event("effect.*")])
def effect_b(run: AgentRun) -> None:
    """A second agent on the same events."""
    leave_effect(run)


@agent("chained", triggers=[on.event("effected", source="run")])
def chained(run: AgentRun) -> None:
    """Wakes on what another agent emitted."""
    leave_effect(run)


@agent("failing", triggers=[on.event("fail.*")], retries=0)
def failing(run: AgentRun) -> str:
    """Fails until an operator fixes it."""
    if not FixedSwitch.objects.exists():
        raise RuntimeError("the switch is not fixed")
    leave_effect(run)
    return "fixed"


@agent("sleeper", triggers=[on.event("sleep.*")], key="event.data.key", overlap="queue", timeout="30s")
def sleeper(run: AgentRun) -> None:
    """Sleeps after its insert, inside the transaction."""
    leave_effect(run)
    time.sleep(run.event.data["seconds"])


@agent("holder", triggers=[on.event("hold.*")])
def holder(run: AgentRun) -> None:
    """Sleeps while it holds a row that every other holder needs."""
    shared = Shared.objects.select_for_update().get(id=1)
    shared.touched += 1
    shared.save()
    leave_effect(run)
    time.sleep(run.event.data["seconds"])


@agent("stubborn", triggers=[on.event("stubborn.*")], timeout="1s")
def stubborn(run: AgentRun) -> None:
    """Ignores every signal to stop."""
    leave_effect(run)
    until = time.monotonic() + run.event.data["seconds"]
    while time.monotonic() < until:
        try:
            time.sleep(0.1)
        except BaseException as error:  # that is the point
            run.log.info("ignored", error=repr(error))


@agent("ticker")
def ticker(run: AgentRun) -> None:
    """One effect a tick; a schedule is made for it in the test."""
    leave_effect(run)


@agent("networker", triggers=[on.event("network.*")], retries=0)
def networker(run: AgentRun) -> None:
    """Tries to reach the outside with its transaction open."""
    leave_effect(run)
    socket.create_connection(("127.0.0.1", 9), timeout=1)
