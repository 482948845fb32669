"""pydantic-ai's DBOS integration, as its documentation sets it up; commands from standard input."""

import asyncio
import os
import threading
import time
from uuid import uuid4

from dbos import DBOS, SetWorkflowID
from pydantic_ai.durable_exec.dbos import DBOSDurability

from bench.ground.pace import serve
from bench.llm_agent import NO_LIMIT, note, talker

QUEUE = "resumed"
PATIENCE = 120.0

DBOS(
    config={
        "name": "bench",
        "system_database_url": os.environ["BENCH_DATABASE"],
        "application_version": "1",
        "log_level": "CRITICAL",
    }
)
marks: list[float] = []
reached, going = threading.Event(), threading.Event()


async def cut() -> None:
    """Where the run is cut: before the last answer."""
    marks.append(time.perf_counter())
    reached.set()
    while not going.is_set():
        await asyncio.sleep(0.001)


# The integration makes a step of each request to the model. A tool is one only if its author declares it.
step = DBOS.step(name="note")(note)
stepped = talker("stepped", tool=step, capabilities=[DBOSDurability()])
unstepped = talker("unstepped", capabilities=[DBOSDurability()])
resumed = talker("resumed", tool=step, before_end=cut, capabilities=[DBOSDurability()])


@DBOS.workflow()
async def talking(count: int, has_steps: bool) -> float:
    agent = stepped if has_steps else unstepped
    began = time.perf_counter()
    await agent.run(str(count), usage_limits=NO_LIMIT)
    return time.perf_counter() - began


@DBOS.workflow()
async def resuming(count: int) -> None:
    marks.append(time.perf_counter())
    await resumed.run(str(count), usage_limits=NO_LIMIT)


def turns(count: int, has_steps: bool) -> float:
    """Seconds of a run of so many turns, within its workflow; `has_steps`: each call of its tool is a step."""
    return float(asyncio.run(talking(count, has_steps)))


def resumes(count: int, times: int) -> list[float]:
    """Seconds of each resume of a run with so many turns in its journal: from the workflow's first line to the first new
    request. What comes before that line, the queue's poll among it, is not counted."""
    with SetWorkflowID(id := str(uuid4())):
        DBOS.enqueue_workflow(QUEUE, resuming, count)
    for _ in range(times):
        stop(id)
        DBOS.resume_workflow(id, queue_name=QUEUE)
    stop(id)
    began, ended = marks[2::2], marks[3::2]
    marks.clear()
    seconds = [end - begin for begin, end in zip(began, ended, strict=True)]
    assert len(seconds) == times, seconds
    require_steps(id, 2 * count)
    return seconds


def stop(id: str) -> None:
    """Cancel it once it has come to the end of its journal."""
    assert reached.wait(PATIENCE)
    reached.clear()
    DBOS.cancel_workflow(id)
    going.set()
    time.sleep(0.1)
    going.clear()


def require_steps(id: str, count: int) -> None:
    """Its journal is whole: the request and the call of each turn."""
    steps = len(DBOS.list_workflow_steps(id))
    assert steps == count, steps


if __name__ == "__main__":
    DBOS.launch()
    DBOS.register_queue(QUEUE, polling_interval_sec=0.05)
    serve({"turns": turns, "resumes": resumes})
