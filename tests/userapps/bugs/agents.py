"""Agents that fail in every way there is."""

import os
import signal
import time

from pydantic_ai import Agent as LlmAgent

from agents import AgentRun, Budget, Permanent, agent, on

llm = LlmAgent(name="bugs")


@agent("plain", triggers=[on.event("bug.plain")], retries=0)
def plain(run: AgentRun) -> None:
    variable = "-".join(["a", "variable", "of", "the", "body"])
    raise LookupError(f"nothing here for {len(variable)} {os.environ['BUGS_PASSWORD']}")


@agent("durable", durable=True, triggers=[on.event("bug.durable")], retries=0)
def durable(run: AgentRun) -> None:
    run.step("one", lambda: 1)
    raise Permanent("no such order")


@agent("retried", triggers=[on.event("bug.retried")], retries=2)
def retried(run: AgentRun) -> None:
    raise RuntimeError("again")


@agent("slow", triggers=[on.event("bug.slow")], retries=0, timeout="1s")
def slow(run: AgentRun) -> None:
    time.sleep(60)


@agent("stubborn", triggers=[on.event("bug.stubborn")], retries=0, timeout="1s")
def stubborn(run: AgentRun) -> None:
    while True:
        try:
            time.sleep(60)
        except BaseException:  # noqa: S112  (that is the point)
            continue


@agent("killed", triggers=[on.event("bug.killed")], retries=0)
def killed(run: AgentRun) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@agent("parked", durable=True, triggers=[on.event("bug.parked")], retries=0)
def parked(run: AgentRun) -> None:
    run.step("charge", die, effect="at_most_once")


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@agent("held", triggers=[on.event("bug.held")], retries=0)
def held(run: AgentRun) -> None:
    time.sleep(60)


@agent("refused", durable=True, triggers=[on.event("bug.refused")], retries=0)
def refused(run: AgentRun) -> str:
    return str(run.llm(llm, f"[script refused {run.id}] Do it.").output)


@agent("broke", durable=True, triggers=[on.event("bug.broke")], budget=Budget(run_tokens=1, at_cap="fail"), retries=0)
def broke(run: AgentRun) -> str:
    return str(run.llm(llm, f"[script refused {run.id}] Do it.").output)
