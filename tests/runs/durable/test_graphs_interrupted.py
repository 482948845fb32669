"""A graph whose body ends at any commit of its run: the same result, one booking, each recorded answer paid once."""

from operator import add
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from agents.graphs import journaled
from agents.models import AgentState
from tests.agents.graphs.models import scripted
from tests.support.deaths import POINTS, Deaths, ended
from tests.support.durable import Lab, lab

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.chaos]
__all__ = ["lab"]


class Trip(TypedDict, total=False):
    found: Annotated[list[str], add]
    booked: int
    by: str
    letter: str


def trip_of(run: Any, model: Any) -> Any:
    def plan(state: Trip) -> Trip:
        return {"found": [f"plan {model.invoke('plan').text}"]}

    def hotel(state: Trip) -> Trip:
        return {"found": [f"hotel {model.invoke('hotel').text}"]}

    def flight(state: Trip) -> Trip:
        return {"found": [f"flight {model.invoke('flight').text}"]}

    def booking() -> int:
        kept, _ = AgentState.objects.get_or_create(agent="durable", name="booked", defaults={"value": 0})
        before: Any = kept.value
        AgentState.objects.filter(pk=kept.pk).update(value=before + 1)
        return int(before) + 1

    def book(state: Trip) -> Trip:
        return {"booked": run.step("book", booking, key="the trip")}

    def ask(state: Trip) -> Trip:
        return {"by": interrupt("Is the trip right?")["by"]}

    def letter(state: Trip) -> Trip:
        return {"letter": str(model.invoke("letter").text)}

    builder = StateGraph(Trip)
    for node in (plan, hotel, flight, book, ask, letter):
        builder.add_node(node.__name__, node)
    for before, after in (
        (START, "plan"), ("plan", "hotel"), ("plan", "flight"), (["hotel", "flight"], "book"), ("book", "ask"), ("ask", "letter"),
        ("letter", END),
    ):  # fmt: skip
        builder.add_edge(before, after)
    return builder.compile()


@pytest.mark.parametrize("point", POINTS)
def test_a_graph_whose_attempt_ends_at_any_commit_ends_the_same(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    deaths, visit = Deaths(monkeypatch), 0
    while True:
        visit += 1
        inner = scripted(lambda text: f"{text}!")
        AgentState.objects.all().delete()

        def body(run: Any, inner: Any = inner) -> Any:
            done = run.graph(trip_of(run, journaled(inner)), {"found": []})
            return {**done, "found": sorted(done["found"])}

        deaths.arm(point, visit)
        run = ended(lab, body)

        assert run.status == "succeeded", (point, visit, run.error, run.status_reason)
        assert run.result == {
            "found": ["flight flight!", "hotel hotel!", "plan plan!"],
            "booked": 1,
            "by": "ann",
            "letter": "letter!",
        }, (point, visit)
        assert AgentState.objects.get(name="booked").value == 1
        # What was answered and not recorded is paid again: one of the two requests beside each other, or both.
        assert len(inner.asked) <= 4 + (2 if point in ("after_call", "before_step_commit") else 0), (point, visit)
        if not deaths.happened:
            assert visit > 1
            return
