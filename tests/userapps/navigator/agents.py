"""A graph that plans a trip: two nodes beside each other ask a model, a booking, a question to a person, an answer of a model. The first
execution of the node that an event names kills its whole worker."""

import json
import os
import signal
import time
import urllib.request
from operator import add
from pathlib import Path
from typing import Annotated, Any, TypedDict

from courier.agents import write
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from agents import AgentRun, AsyncAgentRun, agent, on
from agents.graphs import journaled


class Provider(BaseChatModel):
    """Speaks the format of OpenAI's chat completions."""

    model: str = "gpt-4o"

    @property
    def _llm_type(self) -> str:
        return "provider"

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        body = {"model": self.model, "messages": [{"role": "user", "content": one.content} for one in messages]}
        request = urllib.request.Request(
            f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            said = json.loads(response.read())
        used = said["usage"]
        message = AIMessage(
            said["choices"][0]["message"]["content"],
            usage_metadata={
                "input_tokens": used["prompt_tokens"],
                "output_tokens": used["completion_tokens"],
                "total_tokens": used["total_tokens"],
            },
            response_metadata={"model_name": self.model},
        )
        return ChatResult(generations=[ChatGeneration(message=message)])


model = journaled(Provider())


class Trip(TypedDict, total=False):
    run: str
    dies_in: str
    plan: str
    found: Annotated[list[str], add]
    booked: str
    approved: bool
    letter: str


def die(state: Trip, node: str, run: Any) -> None:
    """Once: the parent of this process, and it with it."""
    mark = Path(os.environ["NAVIGATOR_MARKS"]) / f"{state['run']}-{node}"
    if state.get("dies_in") == node and not mark.exists():
        mark.touch()
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)


def prompt(state: Trip, node: str) -> str:
    return f"[script trip {state['run']}-{node}] {node}"


def graph_of(run: Any) -> Any:
    def plan(state: Trip) -> Trip:
        text = model.invoke(prompt(state, "plan")).content
        die(state, "plan", run)
        return {"plan": text}

    def hotel(state: Trip) -> Trip:
        text = model.invoke(prompt(state, "hotel")).content
        die(state, "hotel", run)
        return {"found": [f"hotel {text}"]}

    def flight(state: Trip) -> Trip:
        text = "".join(chunk.content for chunk in model.stream(prompt(state, "flight")))
        die(state, "flight", run)
        return {"found": [f"flight {text}"]}

    def book(state: Trip) -> Trip:
        booked = run.step("book", write, run.id, "booked", key="the trip")
        die(state, "book", run)
        return {"booked": booked}

    def ask(state: Trip) -> Trip:
        die(state, "ask", run)
        said = interrupt({"question": "Is the trip right?", "arguments": {"found": state["found"]}})
        die(state, "asked", run)
        return {"approved": said["approved"]}

    def letter(state: Trip) -> Trip:
        text = model.invoke(prompt(state, "letter")).content
        die(state, "letter", run)
        return {"letter": text}

    builder = StateGraph(Trip)
    for node in (plan, hotel, flight, book, ask, letter):
        builder.add_node(node.__name__, node)
    builder.add_edge(START, "plan")
    builder.add_edge("plan", "hotel")
    builder.add_edge("plan", "flight")
    builder.add_edge(["hotel", "flight"], "book")
    builder.add_edge("book", "ask")
    builder.add_edge("ask", "letter")
    builder.add_edge("letter", END)
    return builder.compile()


def input_of(run: Any) -> Trip:
    return {"run": str(run.id), "dies_in": run.event.data.get("dies_in", "")}


@agent("navigator", durable=True, triggers=[on.event("trip.wanted")], pause_after=0)
def navigator(run: AgentRun) -> Any:
    done = run.graph(graph_of(run), input_of(run))
    return {**done, "found": sorted(done["found"]), "run": "", "dies_in": ""}


@agent("navigator-async", durable=True, triggers=[on.event("trip.wanted_async")], pause_after=0)
async def navigator_async(run: AsyncAgentRun) -> Any:
    done = await run.graph(graph_of(run.plain), input_of(run))
    return {**done, "found": sorted(done["found"]), "run": "", "dies_in": ""}
