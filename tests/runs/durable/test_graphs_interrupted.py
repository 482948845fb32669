"""A graph whose body ends at any commit of its run: the same result, one booking, each recorded answer paid once."""

from operator import add
from typing import Annotated, Any, TypedDict

import pytest

pytest.importorskip("langgraph")

from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from agents.graphs import journaled
from agents.models import AgentState
from runs.actions.approve import decide
from runs.db import trip
from runs.durable import progress, store
from runs.models import Approval, Run
from tests.agents.graphs.models import scripted
from tests.support.durable import Lab, lab

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.chaos]
__all__ = ["lab"]
POINTS = ("after_call", "before_step_commit", "after_step_commit", "after_step_body")


class Trip(TypedDict, total=False):
    found: Annotated[list[str], add]
    booked: int
    by: str
    letter: str


class Gone(BaseException):
    """The body ends here, and nothing more is written."""


class Deaths:
    """Raises at the so-manieth visit of the point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.point, self.visit, self.happened = "", 0, False
        monkeypatch.setattr(store, "failpoint", self.at)
        real = trip.reach

        def reach(at: str, passed: Any) -> None:
            self.at(at)
            real(at, passed)

        monkeypatch.setattr(progress, "reach", reach)

    def arm(self, point: str, visit: int) -> None:
        self.point, self.visit, self.happened = point, visit, False

    def at(self, point: str) -> None:
        if point == self.point:
            self.visit -= 1
            if self.visit == 0:
                self.happened = True
                raise Gone(point)


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


def ended(lab: Lab, body: Any) -> Run:
    """The run, once it has been tried again where it died, and its question is answered."""
    run = lab.run(body, policy={"retries": 9})
    for _ in range(10):
        for approval in Approval.objects.filter(wait__run=run, wait__status="open", decision=""):
            decide(approval.pk, decision="approve", by="ann")
        if run.status in ("succeeded", "failed", "uncertain"):
            return run
        run = lab.later(run)
    raise AssertionError((run.status, run.status_reason, run.error))
