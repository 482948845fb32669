"""`run.graph`: what it gives, what a replay does, what a person is asked, and what is refused."""

from operator import add
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send, interrupt

from agents import AgentRun, AsyncAgentRun, Permanent
from agents.agent import Agent
from agents.exceptions import StepFailed
from agents.journal.protocol import Answer
from agents.testing import Crashed, Journal, Parked, Unanswered, assert_replays, run_agent
from tests.agents.graphs.models import durable

pytestmark = pytest.mark.django_db


class State(TypedDict, total=False):
    done: Annotated[list[str], add]
    said: Any


def graph(*nodes: Any, **options: Any) -> Any:
    """The nodes one after the other."""
    builder = StateGraph(State)
    names = [node.__name__ for node in nodes]
    for node in nodes:
        builder.add_node(node.__name__, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile(**options)


def noting(name: str, seen: list[str]) -> Any:
    def node(state: State) -> State:
        seen.append(name)
        return {"done": [name]}

    node.__name__ = name
    return node


def after_a_crash(agent: Agent, step: str, **how: Any) -> Any:
    journal = Journal()
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, crash_after=step, **how)
    return run_agent(agent, journal=journal, **how)


def test_the_output_is_the_state_at_the_end() -> None:
    app = graph(noting("a", []), noting("b", []))

    done = run_agent(durable(lambda run: run.graph(app, {"done": ["begun"]})))

    assert done.result == {"done": ["begun", "a", "b"]}
    assert_replays(done)


def test_an_asynchronous_agent_awaits_run_graph() -> None:
    async def node(state: State) -> State:
        return {"done": ["a"]}

    async def body(run: AsyncAgentRun) -> Any:
        return await run.graph(graph(node), {"done": []})

    done = run_agent(durable(body))

    assert done.result == {"done": ["a"]}
    assert_replays(done)


def test_a_replay_goes_on_from_the_last_node() -> None:
    seen: list[str] = []
    app = graph(*(noting(name, seen) for name in "abc"))
    agent = durable(lambda run: run.graph(app, {"done": []}))
    steps = run_agent(agent).steps

    for step in steps[:-1]:
        seen.clear()
        done = after_a_crash(agent, step)
        assert done.result == {"done": ["a", "b", "c"]}, step
        assert all(seen.count(name) <= 2 for name in "abc") and len(seen) <= 4, (step, seen)


def test_a_replay_of_a_graph_that_has_ended_executes_no_node() -> None:
    seen: list[str] = []
    app = graph(noting("a", seen))
    agent = durable(lambda run: [run.graph(app, {"done": []}), run.step("after", lambda: 1)])

    done = after_a_crash(agent, "after")

    assert done.result == [{"done": ["a"]}, 1] and seen == ["a"]


def test_nodes_beside_each_other_are_executed_once_each() -> None:
    seen: list[str] = []

    def each(state: State) -> State:
        seen.append(state["said"])
        return {"done": [state["said"]]}

    builder = StateGraph(State)
    builder.add_node("each", each)
    builder.add_conditional_edges(START, lambda state: [Send("each", {"said": word}) for word in "xyz"])
    agent = durable(lambda run: run.graph(builder.compile(), {"done": []}))

    done = run_agent(agent)

    assert sorted(done.result["done"]) == sorted(seen) == ["x", "y", "z"]
    assert_replays(done)


def test_two_graphs_in_one_run_do_not_share_their_state() -> None:
    app = graph(noting("a", []))

    done = run_agent(durable(lambda run: [run.graph(app, {"done": [word]}) for word in ("x", "y")]))

    assert done.result == [{"done": ["x", "a"]}, {"done": ["y", "a"]}]
    assert {"graph#1", "graph#2"} <= set(done.journal.keys)
    assert_replays(done)


def test_a_graph_may_have_a_key() -> None:
    done = run_agent(durable(lambda run: run.graph(graph(noting("a", [])), {"done": []}, key="trip")))

    assert done.journal.keys[:2] == ["graph:trip", "graph:trip:1"]


def test_values_that_are_no_json_come_back_as_they_were() -> None:
    from datetime import UTC, datetime

    moment = datetime(2026, 1, 2, tzinfo=UTC)
    seen: list[Any] = []

    def first(state: State) -> State:
        return {"said": {"z": {1, 2}, "a": moment, "n": 1e22, "nul": "\x00"}}

    def second(state: State) -> State:
        seen.append(state["said"])
        return {"said": None}

    agent = durable(lambda run: run.graph(graph(first, second), {"done": []})["said"])

    journal = Journal()
    for step in run_agent(agent).steps:
        if step.startswith("graph#1:"):
            journal = Journal()
            with pytest.raises(Crashed):
                run_agent(agent, journal=journal, crash_after=step)
            run_agent(agent, journal=journal)

    assert seen and all(
        one == {"z": {1, 2}, "a": moment, "n": 1e22, "nul": "\x00"} and list(one) == ["z", "a", "n", "nul"]
        for one in seen
    )


# Interrupts


def asking(value: Any) -> Any:
    def ask(state: State) -> State:
        return {"said": interrupt(value)}

    return graph(noting("before", []), ask)


def key_of(agent: Agent, **how: Any) -> tuple[str, Journal]:
    """The key of the wait for the answer, and the journal so far."""
    journal = Journal()
    with pytest.raises(Unanswered):
        run_agent(agent, journal=journal, **how)
    return next(key for key in reversed(journal.keys) if key.startswith("approval:")), journal


def test_an_interrupt_is_a_question_to_a_person() -> None:
    agent = durable(
        lambda run: run.graph(asking({"question": "Book?", "arguments": {"cents": 5}}), {"done": []})["said"]
    )
    key, journal = key_of(agent)

    answer = Answer(decision="edited", arguments={"cents": 4}, by="ann")
    done = run_agent(agent, journal=journal, waits={key: answer})

    assert done.result == {
        "approved": True,
        "decision": "edited",
        "arguments": {"cents": 4},
        "reason": "",
        "by": "ann",
    }
    assert_replays(done)


def test_an_interrupt_may_ask_for_a_text() -> None:
    agent = durable(lambda run: run.graph(asking({"ask": "Which region?"}), {"done": []})["said"])
    key, journal = key_of(agent)

    answer = Answer(decision="edited", arguments={"answer": "eu-west"})

    assert run_agent(agent, journal=journal, waits={key: answer}).result == "eu-west"


def test_the_author_decides_what_a_node_gets_of_an_answer() -> None:
    def decided(value: Any, answer: Answer) -> Any:
        return {"decisions": [{"type": "approve" if answer else "reject"}], "of": value["tool"]}

    agent = durable(lambda run: run.graph(asking({"tool": "pay"}), {"done": []}, answer=decided)["said"])
    key, journal = key_of(agent)

    done = run_agent(agent, journal=journal, waits={key: "denied"})

    assert done.result == {"decisions": [{"type": "reject"}], "of": "pay"}


def test_two_interrupts_of_one_node_are_two_questions() -> None:
    def ask(state: State) -> State:
        return {"said": [interrupt("first?")["by"], interrupt("second?")["by"]]}

    agent = durable(lambda run: run.graph(graph(ask), {"done": []})["said"])
    first, journal = key_of(agent)
    waits = {first: Answer(decision="approved", by="ann")}
    with pytest.raises(Unanswered):
        run_agent(agent, journal=journal, waits=waits)
    second = next(key for key in reversed(journal.keys) if key.startswith("approval:"))

    done = run_agent(agent, journal=journal, waits={**waits, second: Answer(decision="approved", by="bob")})

    assert first != second and done.result == ["ann", "bob"]


def test_interrupts_beside_each_other_are_all_asked() -> None:
    def each(state: State) -> State:
        return {"done": [f"{state['said']} {interrupt(state['said'] + '?')['by']}"]}

    builder = StateGraph(State)
    builder.add_node("each", each)
    builder.add_conditional_edges(START, lambda state: [Send("each", {"said": word}) for word in "xy"])
    agent = durable(lambda run: sorted(run.graph(builder.compile(), {"done": []})["done"]))
    one, journal = key_of(agent)
    waits = {one: Answer(decision="approved", by="ann")}
    with pytest.raises(Unanswered):
        run_agent(agent, journal=journal, waits=waits)
    two = next(key for key in reversed(journal.keys) if key.startswith("approval:") and key != one)

    done = run_agent(agent, journal=journal, waits={**waits, two: Answer(decision="approved", by="bob")})

    assert sorted(word for line in done.result for word in line.split()) == ["ann", "bob", "x", "y"]


def test_an_interrupt_in_a_subgraph_is_asked_once() -> None:
    inner = asking("Go on?")
    builder = StateGraph(State)
    builder.add_node("inner", inner)
    builder.add_edge(START, "inner")
    agent = durable(lambda run: run.graph(builder.compile(), {"done": []})["said"]["by"])
    key, journal = key_of(agent)

    done = run_agent(agent, journal=journal, waits={key: Answer(decision="approved", by="ann")})

    assert done.result == "ann"
    assert_replays(done)


# Steps in nodes


def test_a_step_in_a_node_is_done_once_although_its_node_is_executed_again() -> None:
    booked: list[str] = []

    async def body(run: AsyncAgentRun) -> Any:
        async def book(state: State) -> State:
            await run.step("book", lambda: booked.append("trip"), key="the trip")
            await run.step("look", lambda: None, key="the trip")
            return {"done": ["book"]}

        return await run.graph(graph(book), {"done": []})

    done = after_a_crash(durable(body), "look:the trip")

    assert done.result == {"done": ["book"]} and booked == ["trip"]


def test_an_error_in_a_node_is_the_error_of_the_body_and_the_next_attempt_goes_on_there() -> None:
    seen: list[str] = []
    broken = [True]

    def breaks(state: State) -> State:
        if broken:
            broken.clear()
            raise OSError("not now")
        return {"done": ["breaks"]}

    agent, journal = durable(lambda run: run.graph(graph(noting("a", seen), breaks), {"done": []})), Journal()
    with pytest.raises(OSError, match="not now"):
        run_agent(agent, journal=journal)

    assert run_agent(agent, journal=journal).result == {"done": ["a", "breaks"]}
    assert seen == ["a"]


# What is refused


def refused(body: Any, match: str, **about: Any) -> None:
    with pytest.raises((Permanent, StepFailed), match=match):
        run_agent(durable(body, **about))


def test_an_atomic_agent_has_no_graphs() -> None:
    with pytest.raises(Permanent, match="durable=True"):
        run_agent(Agent(name="walker", body=lambda run: run.graph(graph(noting("a", [])), {})))


def test_what_is_no_compiled_graph_is_refused() -> None:
    refused(lambda run: run.graph(StateGraph(State), {}), "compile")


def test_a_graph_with_a_checkpointer_of_its_own_is_refused() -> None:
    refused(lambda run: run.graph(graph(noting("a", []), checkpointer=InMemorySaver()), {}), "checkpointer of its own")


def test_a_subgraph_with_a_checkpointer_of_its_own_is_refused() -> None:
    builder = StateGraph(State)
    builder.add_node("inner", graph(noting("a", []), checkpointer=InMemorySaver()))
    builder.add_edge(START, "inner")

    refused(lambda run: run.graph(builder.compile(), {"done": []}), "inner has a checkpointer of its own")


def test_breakpoints_which_would_ask_no_person_are_refused() -> None:
    refused(lambda run: run.graph(graph(noting("a", []), interrupt_before=["a"]), {}), "interrupt_before")


def test_a_run_resumes_its_graph_itself() -> None:
    refused(lambda run: run.graph(graph(noting("a", [])), None), "needs an input")


def test_a_graph_whose_nodes_are_gone_parks_its_run() -> None:
    node = [noting("a", []), noting("b", [])]
    agent, journal = durable(lambda run: run.graph(graph(*node), {"done": []})), Journal()
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, crash_after="graph#1:3")
    node.pop()

    with pytest.raises(Parked, match="no longer has: b"):
        run_agent(agent, journal=journal)


def test_a_graph_that_has_got_a_node_goes_on() -> None:
    node = [noting("a", [])]
    agent, journal = durable(lambda run: run.graph(graph(*node), {"done": []})), Journal()
    with pytest.raises(Crashed):
        run_agent(agent, journal=journal, crash_after="graph#1:2")
    node.append(noting("b", []))

    assert run_agent(agent, journal=journal).result == {"done": ["a", "b"]}


def test_a_state_that_is_too_large_fails_the_run_by_name(settings: Any) -> None:
    settings.WAKEFUL_MAX_OUTPUT = 2000

    def grows(state: State) -> State:
        return {"said": "x" * 5000}

    refused(lambda run: run.graph(graph(grows), {"done": []}), "WAKEFUL_MAX_OUTPUT")


def test_entries_of_the_journal_bound_a_graph_that_never_ends(settings: Any) -> None:
    settings.WAKEFUL_MAX_ENTRIES = 20
    builder = StateGraph(State)
    builder.add_node("again", noting("again", []))
    builder.add_edge(START, "again")
    builder.add_edge("again", "again")

    refused(lambda run: run.graph(builder.compile(), {"done": []}), "WAKEFUL_MAX_ENTRIES")


def test_the_error_names_the_extra_where_it_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.graphs.extra.find_spec", lambda name: None)

    refused(lambda run: run.graph(object(), {}), r"wakeful\[langgraph\]")


def test_what_is_caught_in_a_node_does_not_hide_that_the_run_waits() -> None:
    def body(run: AgentRun) -> Any:
        try:
            return run.graph(asking("Go on?"), {"done": []})
        except Exception:
            return "caught"

    with pytest.raises(Unanswered):
        run_agent(durable(body))
