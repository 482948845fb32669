"""Graphs of LangGraph in durable runs: `run.graph(app, input)`. Needs the extra `langgraph`; without it nothing here imports it.

    from agents.graphs import journaled

    model = journaled(ChatOpenAI(model="gpt-5.2"))

    @agent("booking", durable=True, triggers=[on.event("trip.wanted")])
    def booking(run: AgentRun) -> Any:
        return run.graph(app, run.input)["ticket"]

- `call`: one call of `run.graph`, from its input to its output. `definition`: what a graph must be like. `questions`: its interrupts,
  as questions to people.
- `saver`: its checkpoints, which are steps of the run's journal. `values`: how a checkpoint keeps a value.
- `chat_model`: the model that `journaled` makes. `requests`: its requests, which are steps under the run's budgets and its taint.
  `executions`: which of them a node makes again. `messages`: a request and its answer as the journal keeps them. `costs`: what a
  request may cost. `refusals`: models that pass by all of this, and tools beyond the tool cap, are refused.
- `extra`: says which extra is missing.
"""

from collections.abc import Iterable
from typing import Any


def journaled(model: Any, *, trusted_tools: Iterable[str] = (), output_bound: str = "max_tokens") -> Any:
    """A chat model of LangChain whose requests, in a graph of a run, are steps: recorded, and paid once from the run's budgets. Outside
    of runs it is the model itself.

    What a tool gave is data of strangers, and a request that contains it taints the run, unless `trusted_tools` names the tool.
    `output_bound` is the option by which this model limits its answer; a cap of money or tokens sets it.
    """
    from agents.graphs.extra import require_langgraph

    require_langgraph()
    from agents.graphs.chat_model import JournaledChatModel

    return JournaledChatModel(inner=model, trusted_tools=frozenset(trusted_tools), output_bound=output_bound)
