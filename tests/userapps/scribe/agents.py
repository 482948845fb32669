"""Agents that ask a model in six turns, with three tools of three effects side by side, and agents that ask in a loop."""

import asyncio
from typing import Any

from courier.agents import call, write
from pydantic_ai import Agent as LlmAgent
from pydantic_ai import RunContext

from agents import AgentRun, AsyncAgentRun, agent, on

llm = LlmAgent(name="scribe", deps_type=AgentRun)


@llm.tool(metadata={"effect": "transactional", "trusted": True})
def note(ctx: RunContext[AgentRun], number: int) -> str:
    return write(ctx.deps.id, f"note-{number}")


@llm.tool(metadata={"effect": "idempotent", "trusted": True})
def pay(ctx: RunContext[AgentRun], number: int) -> Any:
    return call("/pay", ctx.deps.idempotency_key, number=number)


@llm.tool(metadata={"effect": "at_most_once", "trusted": True})
async def ring(ctx: RunContext[AgentRun], number: int) -> Any:
    return await asyncio.to_thread(call, "/ring", ctx.deps.idempotency_key, number=number)


def prompt(run: AgentRun, script: str, conversation: object = "") -> str:
    return f"[script {script} {conversation or run.id}] Do what is to be done."


@agent("six", durable=True, triggers=[on.event("scribe.six")], pause_after=0)
def six(run: AgentRun) -> str:
    return run.llm(llm, prompt(run, "six"), deps=run).output


@agent("six-async", durable=True, triggers=[on.event("scribe.six_async")], pause_after=0)
async def six_async(run: AsyncAgentRun) -> str:
    return (await run.llm(llm, prompt(run, "six"), deps=run)).output


@agent("six-parked", durable=True, triggers=[on.event("scribe.six_parked")], pause_after=0)
def six_parked(run: AgentRun) -> str:
    return run.llm(llm, prompt(run, "six"), deps=run, llm_in_flight="park").output


LOOPS = 4


@agent("loop", durable=True, triggers=[on.event("scribe.loop")], pause_after=0)
def loop(run: AgentRun) -> list[str]:
    """Asks and writes in turn."""
    outputs = []
    for number in range(LOOPS):
        outputs.append(run.llm(llm, prompt(run, "one", f"{run.id}-{number}"), deps=run).output)
        run.step(f"write-{number}", write, run.id, f"write-{number}")
    return outputs


@agent("loop-async", durable=True, triggers=[on.event("scribe.loop_async")], pause_after=0)
async def loop_async(run: AsyncAgentRun) -> list[str]:
    outputs = []
    for number in range(LOOPS):
        outputs.append((await run.llm(llm, prompt(run, "one", f"{run.id}-{number}"), deps=run)).output)
        await run.step(f"write-{number}", write, run.id, f"write-{number}")
    return outputs


@agent("talk", durable=True, triggers=[on.event("scribe.talk")], pause_after=0)
def talk(run: AgentRun) -> str:
    return run.llm(llm, prompt(run, "talk"), deps=run).output


@agent("talk-once", durable=True, triggers=[on.event("scribe.talk_once")], pause_after=0)
def talk_once(run: AgentRun) -> str:
    return run.llm(llm, prompt(run, "talk"), deps=run, llm_in_flight="park").output
