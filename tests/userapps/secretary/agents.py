"""An agent of openai-agents that plans a trip: an expert that is a tool beside a booking, a handoff, a tool that a person approves. Its
worker is killed after the turn that an event names, once. Only where Wakeful is installed as a package."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from courier.agents import write

from agents import AgentRun, AsyncAgentRun, agent, on
from agents.openai.sdk import sdk

SDK: Any = sdk()


class Deaths(SDK.RunHooks):  # type: ignore[misc]  # where the SDK is, there are no types of it
    """Kills the parent of this process, and it with it."""

    def __init__(self, run: Any) -> None:
        self.run, self.turns = run, 0

    async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
        self.turns += 1
        mark = Path(os.environ["SECRETARY_MARKS"]) / str(self.run.id)
        if self.turns == self.run.event.data.get("dies_after") and not mark.exists():
            mark.touch()
            os.kill(os.getppid(), signal.SIGKILL)
            time.sleep(60)


@SDK.function_tool(needs_approval=True)
def send(text: str) -> str:
    return text


def planner(book: Any) -> Any:
    about = {"instructions": "Plan the trip.", "model": "gpt-4o"}
    expert = SDK.Agent(name="expert", **about).as_tool("expert", "knows hotels")
    writer = SDK.Agent(name="writer", tools=[send], **about)
    return SDK.Agent(name="planner", tools=[expert, book], handoffs=[writer], **about)


def prompt(run: Any) -> str:
    return f"[script {run.event.data.get('script', 'secretary')} {run.id}] Plan a trip."


def result_of(done: Any) -> Any:
    return [done.last_agent.name, done.final_output]


@agent("secretary", durable=True, triggers=[on.event("plan.wanted")], pause_after=0)
def secretary(run: AgentRun) -> Any:
    @SDK.function_tool
    def book(city: str) -> str:
        return str(run.step("book", write, run.id, "booked", key=city))

    return result_of(run.openai(planner(book), prompt(run), hooks=Deaths(run)))


@agent("secretary-async", durable=True, triggers=[on.event("plan.wanted_async")], pause_after=0)
async def secretary_async(run: AsyncAgentRun) -> Any:
    @SDK.function_tool
    async def book(city: str) -> str:
        return str(await run.step("book", write, run.id, "booked", key=city))

    return result_of(await run.openai(planner(book), prompt(run), hooks=Deaths(run)))
