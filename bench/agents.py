"""The agents that are measured; the bench's stack gets them by WAKEFUL_APPS=bench."""

import time
from datetime import timedelta

from agents import AgentRun, Budget, Retry, agent, on
from bench.ground.names import DRAINED
from runs.db.sql import execute

NAP = 0.2  # seconds


@agent("bench.noop", triggers=[on.event("bench.noop")])
def noop(run: AgentRun) -> None:
    """Nothing, once."""


@agent("bench.nap", triggers=[on.event("bench.nap")])
def nap(run: AgentRun) -> None:
    """Waits for something outside, and occupies its child meanwhile."""
    time.sleep(NAP)


@agent("bench.last", triggers=[on.event("bench.last")], priority=9)
def last(run: AgentRun) -> None:
    """Claimed after every no-op; its commit sends the notification."""
    execute(f"NOTIFY {DRAINED}")


@agent("bench.first_line", triggers=[on.event("bench.ping")])
def first_line(run: AgentRun) -> float:
    return time.time()


# Durable ones. Each appends to `marks` when (seconds of this process's own clock) it passed what is measured.

marks: list[float] = []
COUNT = {"count": "event.data.count"}


@agent("bench.steps", durable=True, input=COUNT | {"inserts": "event.data.inserts"}, triggers=[on.event("bench.steps")])
def steps(run: AgentRun) -> None:
    """`count` steps that do nothing, or that insert one row each."""
    body = insert if run.input["inserts"] else nothing
    marks.append(time.perf_counter())
    for number in range(run.input["count"]):
        run.step(f"step-{number}", body, number)
    marks.append(time.perf_counter())


@agent("bench.resumed", durable=True, retries=1000, input=COUNT, triggers=[on.event("bench.resumed")])
def resumed(run: AgentRun) -> None:
    """`count` steps, and then again from the top."""
    for number in range(run.input["count"]):
        run.step(f"step-{number}", nothing, number)
    marks.append(time.perf_counter())
    raise Retry(after=0)


@agent(
    "bench.sleeper",
    durable=True,
    input=COUNT | {"microseconds": "event.data.microseconds"},
    triggers=[on.event("bench.sleeper")],
)
def sleeper(run: AgentRun) -> None:
    for _ in range(run.input["count"]):
        marks.append(time.perf_counter())
        run.sleep(timedelta(microseconds=run.input["microseconds"]))
        marks.append(time.perf_counter())


@agent(
    "bench.listener",
    durable=True,
    input=COUNT | {"name": "event.data.name", "tells": "event.data.tells"},
    triggers=[on.event("bench.listener")],
)
def listener(run: AgentRun) -> list[float]:
    """`count` events waited for; when each was there, in seconds since 1970."""
    seen = []
    for number in range(run.input["count"]):
        marks.append(time.perf_counter())
        run.wait_for_event("bench.answer", match={"to": run.input["name"], "number": number})
        marks.append(time.perf_counter())
        seen.append(run.step(f"seen-{number}", time.time, effect="read") if run.input["tells"] else 0.0)
    return seen


@agent("bench.llm", durable=True, input=COUNT, triggers=[on.event("bench.llm")])
def llm(run: AgentRun) -> None:
    """`count` turns of an LLM agent."""
    talk(run)


@agent(
    "bench.llm_capped",
    durable=True,
    input=COUNT,
    budget=Budget(day_usd="1000"),
    triggers=[on.event("bench.llm_capped")],
)
def llm_capped(run: AgentRun) -> None:
    talk(run)


def talk(run: AgentRun) -> None:
    from bench.llm_agent import NO_LIMIT, talker  # pydantic-ai takes most of a second to import

    agent = talker("bench")
    marks.append(time.perf_counter())
    run.llm(agent, str(run.input["count"]), usage_limits=NO_LIMIT)
    marks.append(time.perf_counter())


@agent("bench.llm_resumed", durable=True, retries=1000, input=COUNT, triggers=[on.event("bench.llm_resumed")])
def llm_resumed(run: AgentRun) -> None:
    """`count` turns, and then again from the top."""
    from bench.llm_agent import NO_LIMIT, talker

    async def cut() -> None:
        marks.append(time.perf_counter())
        raise Retry(after=0)

    run.llm(talker("bench", before_end=cut), str(run.input["count"]), usage_limits=NO_LIMIT)


def nothing(number: int) -> None:
    pass


def insert(number: int) -> None:
    execute("INSERT INTO bench_row (number) VALUES (%s::int)", [number])


@agent("bench.waiter", durable=True)
def waiter(run: AgentRun) -> None:
    """Waits once, for what its input names."""
    match run.input["for"]:
        case "time":
            run.sleep("30d")
        case "event":
            run.wait_for_event("bench.awaited", match={"number": run.input["number"]})
        case "approval":
            run.ask_approval("May it go on?")


@agent("bench.think", durable=True, input={"script": "event.data.script"}, triggers=[on.event("bench.think")])
def think(run: AgentRun) -> str:
    """Asks the model that the settings name, which knows the script."""
    from bench.llm_agent import NO_LIMIT, thinker

    return str(run.llm(thinker(), f"[script {run.input['script']} {run.id}]", usage_limits=NO_LIMIT).output)
