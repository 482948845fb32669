"""A clerk whose tools are given to one call, with an agent that it hands tasks to, and a sender whose output is a function. What they
do stands in a file."""

import os
from pathlib import Path
from typing import Any

from pydantic_ai import Agent as LlmAgent
from pydantic_ai.toolsets import FunctionToolset

from agents import AgentRun, agent, on
from agents.llm.delegates import Delegate
from agents.llm.outputs import output_function

MODEL = "openai-chat:gpt-4o"
cashier = LlmAgent(MODEL, name="cashier", defer_model_check=True)
clerk = LlmAgent(MODEL, name="till", defer_model_check=True)


def note(line: str) -> None:
    with Path(os.environ["TILL_FILE"]).open("a") as file:
        file.write(line + "\n")


def refund(cents: int) -> str:
    """Refund."""
    note(f"refund {cents}")
    return "refunded"


tools: Any = FunctionToolset(id="till")
tools.add_function(refund, metadata={"effect": "at_most_once", "dangerous": True})


@cashier.tool_plain(metadata={"effect": "at_most_once", "dangerous": True})
def pay_out(cents: int) -> str:
    """Pay out."""
    note(f"pay out {cents}")
    return "paid out"


@agent("till", durable=True, triggers=[on.event("mail.came")], retries=5, pause_after=0)
def till(run: AgentRun) -> str:
    given = [tools, Delegate(cashier, "Pays out.")]
    output = run.llm(clerk, run.event.data["prompt"], untrusted=run.event.data["text"], toolsets=given).output
    run.sleep("2s")
    return str(output)


@output_function(effect="at_most_once")
def send(number: int) -> str:
    """Send the invoice of this number."""
    note(f"sent {number}")
    return f"sent {number}"


sender: Any = LlmAgent(MODEL, name="sender", output_type=send, defer_model_check=True)


@agent("sender", durable=True, triggers=[on.event("invoice.due")], retries=5, pause_after=0)
def send_it(run: AgentRun) -> str:
    output = run.llm(sender, run.event.data["prompt"]).output
    run.sleep("2s")
    run.sleep("2s", key="more")
    return str(output)
