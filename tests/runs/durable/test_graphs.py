"""Graphs in runs on the real database: budgets, the transcript, forks, and what is kept of their states."""

import threading
from decimal import Decimal
from typing import Any

import pytest

pytest.importorskip("langgraph")

from django.db import transaction
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from agents.graphs import journaled
from runs.actions.fork import fork
from runs.budgets.caps import create_budget, set_cap
from runs.durable.transcript import transcript_of
from runs.models import Approval, BudgetWindow, Reservation, Run, Step, Wait
from runs.retention.payloads import remove_payloads
from tests.agents.graphs.models import scripted
from tests.support.durable import Lab, lab

pytestmark = pytest.mark.django_db(transaction=True)
__all__ = ["lab"]


def app_of(*nodes: Any) -> Any:
    state: Any = dict
    builder = StateGraph(state)
    names = [node.__name__ for node in nodes]
    for node in nodes:
        builder.add_node(node.__name__, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile()


def asking(inner: Any, *more: Any) -> Any:
    def first(state: Any) -> Any:
        return {"said": str(journaled(inner).invoke("What is to be done?").text)}

    return lambda run: run.graph(app_of(first, *more), {"letter": "the secret letter"})["said"]


def test_a_request_is_reserved_settled_and_in_the_transcript(lab: Lab) -> None:
    create_budget(scope="installation", period="day", measure="usd", cap=Decimal(1), by="test")
    inner = scripted("so")

    run = lab.run(asking(inner))

    assert (run.status, run.result) == ("succeeded", "so"), run.error
    [step] = Step.objects.filter(run=run, kind="model")
    usage: Any = step.usage
    assert usage["model"] == "gpt-4o" and Decimal(usage["cost"]) > 0 and usage["input_tokens"] == 100
    assert not Reservation.objects.exists()
    assert BudgetWindow.objects.get().spent == Decimal(usage["cost"])
    assert inner.asked[0]["max_tokens"] > 0  # bounded, as it was reserved
    [turn] = transcript_of(run).calls[0].turns
    assert [part.text for part in turn.answer] == ["so"] and turn.prompt[0].text == "What is to be done?"


def test_a_run_waits_for_room_in_a_budget_and_then_asks_once(lab: Lab) -> None:
    budget = create_budget(scope="installation", period="day", measure="usd", cap=Decimal("0.000001"), by="test")
    inner = scripted("so")

    run = lab.run(asking(inner))

    assert run.status == "waiting" and Wait.objects.get(run=run, status="open").kind == "budget"
    assert not inner.asked
    set_cap(budget.pk, Decimal(1), by="test")
    assert lab.go_on(run).result == "so" and len(inner.asked) == 1


def test_a_crash_repeats_no_recorded_request(lab: Lab) -> None:
    inner, tries = scripted("so"), []

    def breaks(state: Any) -> Any:
        tries.append(1)
        if len(tries) == 1:
            raise SystemExit(1)
        return state

    run = lab.run(asking(inner, breaks), policy={"retries": 3})
    run = lab.later(run)

    assert run.status == "succeeded" and len(inner.asked) == 1 and len(tries) == 2, (run.status, run.error)


def test_a_node_that_outlives_its_run_spoils_no_later_run(lab: Lab) -> None:
    goes_on = threading.Event()

    def hangs(state: Any) -> Any:
        goes_on.wait(60)
        return state

    def ends(state: Any) -> Any:
        return {"said": "so"}

    try:
        late = lab.run(lambda run: run.graph(app_of(hangs), {"a": 1}), policy={"timeout": 0.5})
        run = lab.run(lambda run: run.graph(app_of(ends), {"a": 1})["said"])
    finally:
        goes_on.set()

    assert (late.status, late.status_reason) == ("failed", "deadline")
    assert (run.status, run.result) == ("succeeded", "so"), run.error


def test_an_interrupt_waits_without_a_worker(lab: Lab) -> None:
    from runs.actions.approve import decide

    def ask(state: Any) -> Any:
        return {"said": interrupt("Pay?")["by"]}

    run = lab.run(asking(scripted(), ask))

    assert run.status == "waiting"
    decide(Approval.objects.get().pk, decision="approve", by="ann")
    assert lab.go_on(run).result == "ann"


def test_a_fork_goes_on_from_a_copy_of_its_checkpoints(lab: Lab) -> None:
    inner, seen = scripted("so"), []

    def second(state: Any) -> Any:
        seen.append(state["said"])
        return {"said": f"{state['said']} {len(seen)}"}

    run = lab.run(asking(inner, second))
    last = Step.objects.filter(run=run, key__startswith="graph#1:").order_by("-position").first()
    assert run.result == "so 1" and last

    forked = lab.go_on(fork(run.pk, by="ann", step=last.key))

    assert forked.status == "succeeded" and forked.result in ("so 1", "so 2"), forked.error
    assert len(inner.asked) == 1
    assert Run.objects.filter(forked_from_id=run.pk).count() == 1


def test_what_a_state_holds_is_removed_with_the_payload_of_its_run(lab: Lab) -> None:
    run = lab.run(asking(scripted()))
    assert "secret letter" in str(list(Step.objects.filter(run=run).values_list("output", flat=True)))

    with transaction.atomic():
        remove_payloads([run.pk])

    assert {*Step.objects.filter(run=run).values_list("output", flat=True)} == {None}


def test_an_agent_that_keeps_no_content_keeps_no_states(lab: Lab) -> None:
    run = lab.run(asking(scripted()), policy={"keep_content": False})

    assert run.status == "succeeded"
    kept = Step.objects.filter(run=run, key__startswith="graph#1").values_list("output", flat=True)
    assert kept and {*kept} == {None}


def test_readers_are_shown_no_bytes_of_a_state(lab: Lab) -> None:
    from runs.api.runs_json import StepSerializer

    def odd(state: Any) -> Any:
        return {"said": "x", "odd": {1, 2}}

    run = lab.run(asking(scripted(), odd))
    steps = list(Step.objects.filter(run=run, key__startswith="graph#1:"))
    for step in steps:
        step.shown = step.output  # type: ignore[attr-defined]
        step.output_size = 0  # type: ignore[attr-defined]

    assert "base64" in str([step.output for step in steps])
    assert "base64" not in str(StepSerializer(steps, many=True).data)
