"""A tool of the toolbox as a model calls it, in a durable run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import Agent as LlmAgent

from agents.agent import Agent
from agents.kernel.connecting import MayUse
from agents.run import AgentRun
from agents.testing import AgentResult, Journal, assert_replays, run_agent
from agents.tools import toolbox
from tests.support.llm import Turns


@dataclass(frozen=True, kw_only=True)
class Called:
    done: AgentResult
    results: list[str]  # of each call, as the model got them


def call(
    name: str,
    *calls: Mapping[str, Any],
    is_tainted: bool = False,
    waits: Mapping[str, Any] | None = None,
    data: Any = None,
    journal: Journal | None = None,
    connections: Sequence[str] = (),
) -> Called:
    """Run an agent whose model calls the tool, once in each turn. A replay does nothing a second time."""
    turns = Turns(*([(name, dict(arguments))] for arguments in calls), "done")
    results: list[str] = []

    def body(run: AgentRun) -> None:
        llm = LlmAgent(turns.model, name="asker", tools=[toolbox.get(name)])
        messages = run.llm(llm, "Do it.", deps=run).all_messages()
        parts = [part for message in messages for part in message.parts]
        results[:] = [str(getattr(part, "content", "")) for part in parts if getattr(part, "tool_name", "") == name][
            1::2
        ]

    agent = Agent(name="asker", body=body, durable=True, connections=MayUse(names={one: one for one in connections}))
    done = run_agent(agent, is_tainted=is_tainted, waits=waits, data=data, journal=journal)
    assert_replays(done)
    return Called(done=done, results=results)
