"""Agents that leave an Effect, in the ways in which runs may get into each other's way."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from asgiref.sync import sync_to_async

from agents import AgentRun, Retry, agent, on
from runs.db.sql import database_now
from runs.failpoints import failpoint

from . import durable  # noqa: F401  (its agents)
from .models import Effect, Shared


@contextmanager
def effect(run: AgentRun, **columns: Any) -> Iterator[Effect]:
    """One effect from the body's beginning to its end."""
    data = run.event.data if isinstance(run.event.data, dict) else {}
    left = Effect.objects.create(
        event=run.event.id, agent=run.agent, trigger=run.trigger, run=run.id, attempt=run.attempt, events=len(run.events),
        key=str(data.get("key", "")), number=data.get("number"), began_at=database_now(), **columns,
    )  # fmt: skip
    failpoint("in_body")
    yield left
    Effect.objects.filter(pk=left.pk).update(ended_at=database_now())


def whole_effect(run: AgentRun) -> None:
    with effect(run):
        pass


@agent("plain", triggers=[on.event("lab.plain")], pause_after=0)
def plain(run: AgentRun) -> dict[str, Any]:
    """Emits, so that a chain of three follows."""
    with effect(run, emitted=2):
        run.emit("lab.echo", {"of": str(run.event.id)})
        run.emit("lab.echo", {"of": str(run.event.id)}, key="second")
    return {"data": run.event.data}


@agent("plain-b", triggers=[on.event("lab.plain", "lab.batched")], pause_after=0)
def plain_b(run: AgentRun) -> None:
    """A second agent on the same events."""
    with effect(run):
        pass


@agent("echo", triggers=[on.event("lab.echo", source="run")], pause_after=0)
def echo(run: AgentRun) -> None:
    with effect(run, emitted=1):
        run.emit("lab.last", {"of": str(run.event.id)})
        run.notify("heard", urgency="low")


@agent("last", triggers=[on.event("lab.last", source="run")], pause_after=0)
def last(run: AgentRun) -> None:
    with effect(run):
        pass


@agent("ordered", triggers=[on.event("lab.ordered")], key="event.data.key", overlap="queue", pause_after=0)
def ordered(run: AgentRun) -> None:
    """One after the other, in the sender's order; every fifth fails at first, and keeps its place."""
    with effect(run):
        if run.event.data["number"] % 5 == 3 and run.attempt == 1:
            raise Retry("not yet", after=0.2)
        time.sleep(0.01)


@agent("single", triggers=[on.event("lab.single")], key="event.data.key", overlap="skip", pause_after=0)
def single(run: AgentRun) -> None:
    """Another event of its key meanwhile starts nothing."""
    with effect(run):
        time.sleep(0.05)


@agent("pooled", triggers=[on.event("lab.pooled")], key="event.data.key", key_limit=3, pause_after=0)
def pooled(run: AgentRun) -> None:
    """Three of a key at once; one that is to be retried gives its place to another."""
    with effect(run):
        if run.event.data["number"] % 4 == 1 and run.attempt == 1:
            raise Retry("not yet", after=0.2)
        time.sleep(0.05)


@agent("joining", triggers=[on.event("lab.joining")], key="event.data.key", overlap="queue_one", pause_after=0)
def joining(run: AgentRun) -> None:
    """What comes while one waits goes along with it."""
    with effect(run):
        time.sleep(0.1)


@agent(
    "replacing", triggers=[on.event("lab.replacing")], key="event.data.key", overlap="cancel_previous", pause_after=0
)
def replacing(run: AgentRun) -> None:
    """The latest wins."""
    with effect(run):
        time.sleep(0.1)


@agent("rated", triggers=[on.event("lab.rated")], rate="4/s", pause_after=0)
def rated(run: AgentRun) -> None:
    """Four a second; the others later."""
    with effect(run):
        pass


@agent("choosy", triggers=[on.event("lab.rated")], rate="2/s", overflow="drop", pause_after=0)
def choosy(run: AgentRun) -> None:
    """Two a second; the others never, with a reason."""
    with effect(run):
        pass


@agent("settled", triggers=[on.event("lab.settled")], key="event.data.key", debounce=0.4, max_wait=1.5, pause_after=0)
def settled(run: AgentRun) -> None:
    """Waits for quiet."""
    with effect(run):
        pass


@agent("batched", triggers=[on.event("lab.batched")], batch=3, max_wait=1.0, pause_after=0)
async def batched(run: AgentRun) -> None:
    """Three at a time, or what there is after a second."""
    await sync_to_async(whole_effect)(run)


@agent("narrow", triggers=[on.event("lab.narrow")], queue="narrow", pause_after=0)
def narrow(run: AgentRun) -> None:
    """In a queue that lets one run at a time go, over all workers."""
    with effect(run):
        time.sleep(0.02)


@agent("flaky", triggers=[on.event("lab.flaky")], retries=4, pause_after=0)
def flaky(run: AgentRun) -> None:
    """Succeeds with its third attempt."""
    with effect(run):
        if run.attempt < 3:
            raise RuntimeError("not this time")


@agent("doomed", triggers=[on.event("lab.doomed")], retries=1, pause_after=0)
def doomed(run: AgentRun) -> None:
    """Never succeeds."""
    with effect(run):
        raise RuntimeError("never")


@agent("slow", triggers=[on.event("lab.slow")], pause_after=0)
def slow(run: AgentRun) -> None:
    """Holds a row that others of its kind want."""
    with effect(run):
        shared, _ = Shared.objects.select_for_update().get_or_create(id=1 + run.event.data["number"] % 2)
        shared.touched += 1
        shared.save()
        failpoint("holding_rows")
        time.sleep(run.event.data["seconds"])


@agent("late", triggers=[on.event("lab.late")], timeout="0.5s", pause_after=0)
def late(run: AgentRun) -> None:
    """Past its timeout; it fails."""
    with effect(run):
        time.sleep(20)


@agent("stubborn", triggers=[on.event("lab.stubborn")], timeout="0.5s", pause_after=0)
def stubborn(run: AgentRun) -> None:
    """Runs past its timeout, and ignores the exception."""
    with effect(run):
        until = time.monotonic() + run.event.data["seconds"]
        while time.monotonic() < until:
            try:
                time.sleep(0.1)
            except BaseException as error:  # that is the point
                run.log.info("ignored", error=repr(error))


@agent("tick", pause_after=0)
def tick(run: AgentRun) -> None:
    """One effect a tick; each seed makes a schedule for it."""
    with effect(run):
        pass
