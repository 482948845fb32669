"""What a graph must be like to run here."""

from collections.abc import Iterator
from typing import Any

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.pregel import Pregel

from agents.exceptions import Permanent


def require_runnable(app: Any) -> None:
    """Permanent: this is no graph, or it has a checkpointer or breakpoints of its own."""
    if not isinstance(app, Pregel):
        raise Permanent(f"run.graph takes a compiled graph of LangGraph (builder.compile()), not {app!r}")
    for name, graph in [("the graph", app), *app.get_subgraphs(recurse=True)]:
        if not isinstance(graph, Pregel):
            raise Permanent(f"run.graph: {name!r} runs elsewhere, where nothing would be recorded: call it in run.step")
        if isinstance(graph.checkpointer, BaseCheckpointSaver):
            raise Permanent(
                f"run.graph: {name} has a checkpointer of its own ({type(graph.checkpointer).__name__}), which the run does not see. "
                "Compile it without one: the journal of the run keeps its checkpoints"
            )
        if graph.interrupt_before_nodes or graph.interrupt_after_nodes:
            raise Permanent(
                f"run.graph: {name} has interrupt_before or interrupt_after, which ask nothing: call interrupt(question) in a node instead"
            )


def nodes_of(app: Any) -> list[str]:
    """The names of its nodes, and of those of its subgraphs."""
    return sorted(_nodes(app))


def _nodes(app: Any) -> Iterator[str]:
    yield from app.nodes
    for name, graph in app.get_subgraphs(recurse=True):
        yield from (f"{name}|{node}" for node in graph.nodes)
