"""Agents of openai-agents in runs on the real database: budgets, the transcript, forks, and attempts that end at any commit."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic_ai import Agent

from agents.models import AgentState
from runs.actions.fork import fork
from runs.budgets.caps import create_budget, set_cap
from runs.durable.transcript import transcript_of
from runs.models import BudgetWindow, Reservation, Run, Step, Wait
from tests.agents.openai.assistants import SDK, UNCLOSED, assistant, chat_model, provider, wire
from tests.support.deaths import POINTS, Deaths, ended
from tests.support.durable import Lab, lab
from tests.support.wire import Call, Cut, Slow, Turn, Wire

pytestmark = [pytest.mark.django_db(transaction=True), *UNCLOSED]
__all__ = ["chat_model", "lab", "provider", "wire"]


def asking(wire: Wire, conversation: str, *, script: str = "word", **about: Any) -> Any:
    return lambda run: run.openai(assistant(**about), wire.prompt(script, conversation)).final_output


@pytest.fixture(autouse=True)
def scripts(wire: Wire) -> None:
    wire.script("word", "so")


@pytest.mark.parametrize("is_object", [False, True])
def test_a_request_is_reserved_settled_and_in_the_transcript(
    lab: Lab, wire: Wire, chat_model: Any, is_object: bool
) -> None:
    create_budget(scope="installation", period="day", measure="usd", cap=Decimal(1), by="test")
    about = {"model": chat_model} if is_object else {}

    run = lab.run(asking(wire, f"budget-{is_object}", **about))

    assert (run.status, run.result) == ("succeeded", "so"), run.error
    [step] = Step.objects.filter(run=run, kind="model")
    usage: Any = step.usage
    assert usage["model"] == "gpt-4o" and Decimal(usage["cost"]) > 0 and usage["input_tokens"] == 100
    assert not Reservation.objects.exists()
    assert BudgetWindow.objects.get().spent == Decimal(usage["cost"])
    [request] = wire.of(f"budget-{is_object}")
    assert request.body.get("max_output_tokens") or request.body.get("max_tokens")  # bounded, as it was reserved
    [turn] = transcript_of(run).calls[0].turns
    assert [part.text for part in turn.answer] == ["so"] and turn.prompt[0].text.startswith("[script word")


@pytest.mark.parametrize("extra", [{"max_output_tokens": 100_000}, {"model": "gpt-5-pro"}])
def test_what_a_request_costs_is_not_changed_beside_what_is_reserved(lab: Lab, wire: Wire, extra: Any) -> None:
    create_budget(scope="installation", period="day", measure="usd", cap=Decimal(1), by="test")
    conversation = f"beside-{next(iter(extra))}"

    run = lab.run(asking(wire, conversation, model_settings=SDK.ModelSettings(max_tokens=10, extra_body=extra)))

    assert run.status == "failed" and "nothing is reserved" in run.error
    assert not wire.of(conversation) and not Reservation.objects.exists()
    assert not BudgetWindow.objects.filter(spent__gt=0).exists()


def test_a_transcript_has_each_item_once(lab: Lab, wire: Wire) -> None:
    wire.script("sums", [Call("add", a=1, b=2)], [Call("add", a=3, b=4)], "10")

    @SDK.function_tool
    def add(a: int, b: int) -> int:
        return a + b

    run = lab.run(asking(wire, "transcript", script="sums", tools=[add]))

    [call] = transcript_of(run).calls
    assert [[part.text for part in turn.prompt] for turn in call.turns[1:]] == [["3"], ["7"]]


def test_a_run_waits_for_room_in_a_budget_and_then_asks_once(lab: Lab, wire: Wire) -> None:
    budget = create_budget(scope="installation", period="day", measure="usd", cap=Decimal("0.000001"), by="test")

    run = lab.run(asking(wire, "room"))

    assert run.status == "waiting" and Wait.objects.get(run=run, status="open").kind == "budget"
    assert not wire.of("room")
    set_cap(budget.pk, Decimal(1), by="test")
    assert lab.go_on(run).result == "so" and wire.asked("room") == {0: 1}


def test_a_cap_that_is_reached_in_the_middle_stops_before_the_next_request(lab: Lab, wire: Wire) -> None:
    wire.script("twice", [Call("look")], "seen")
    budget = create_budget(scope="installation", period="day", measure="requests", cap=Decimal(1), by="test")

    @SDK.function_tool
    def look() -> str:
        return "it"

    run = lab.run(asking(wire, "capped", script="twice", tools=[look]))

    assert run.status == "waiting" and wire.asked("capped") == {0: 1}
    set_cap(budget.pk, Decimal(5), by="test")
    assert lab.go_on(run).result == "seen" and wire.asked("capped") == {0: 1, 1: 1}


def test_run_llm_beside_it_is_in_the_same_budget(lab: Lab, wire: Wire) -> None:
    create_budget(scope="installation", period="day", measure="requests", cap=Decimal(9), by="test")

    def body(run: Any) -> Any:
        first = run.openai(assistant(), wire.prompt("word", "beside")).final_output
        second = run.llm(Agent("openai-chat:gpt-4o", name="word"), wire.prompt("word", "beside2")).output
        return [first, second]

    run = lab.run(body)

    assert run.result == ["so", "so"], run.error
    assert BudgetWindow.objects.get().spent == 2


def test_the_deadline_of_a_body_ends_a_request_under_way(lab: Lab, wire: Wire) -> None:
    wire.script("slow", Turn("late", faults=[Slow(30)]))

    run = lab.run(asking(wire, "slow", script="slow"), policy={"timeout": 1.5})
    again = lab.run(asking(wire, "after-slow"))

    assert (run.status, run.status_reason) == ("failed", "deadline")
    assert (again.status, again.result) == ("succeeded", "so"), again.error


def test_a_request_whose_answer_is_cut_is_made_again(lab: Lab, wire: Wire) -> None:
    wire.script("cut", Turn("whole", faults=[Cut()]))

    run = lab.later(lab.run(asking(wire, "cut", script="cut")))

    assert (run.status, run.result) == ("succeeded", "whole"), run.error
    assert wire.asked("cut") == {0: 2}


def test_a_fork_goes_on_from_a_copy_of_its_requests(lab: Lab, wire: Wire) -> None:
    run = lab.run(asking(wire, "forked"))

    forked = lab.go_on(fork(run.pk, by="ann", step="openai#1:request 1"))

    assert (forked.status, forked.result) == ("succeeded", "so"), forked.error
    assert wire.asked("forked") == {0: 2}  # this one step is made again
    assert Run.objects.filter(forked_from_id=run.pk).count() == 1


# Attempts that end


def booking() -> str:
    kept, _ = AgentState.objects.get_or_create(agent="durable", name="booked", defaults={"value": 0})
    before: Any = kept.value
    AgentState.objects.filter(pk=kept.pk).update(value=before + 1)
    return f"booked {before + 1}"


def trip_of(wire: Wire, conversation: str) -> Any:
    def body(run: Any) -> Any:
        @SDK.function_tool
        def book(city: str) -> str:
            return str(run.step("book", booking, key=city))

        @SDK.function_tool(needs_approval=True)
        def send(text: str) -> str:
            return text

        expert = assistant("expert").as_tool("expert", "knows hotels")
        writer = assistant("writer", tools=[send])
        planner = assistant("planner", tools=[expert, book], handoffs=[writer])
        done = run.openai(planner, wire.prompt("trip", conversation))
        return [done.last_agent.name, done.final_output]

    return body


@pytest.mark.chaos
@pytest.mark.parametrize("point", POINTS)
def test_an_attempt_that_ends_at_any_commit_ends_the_same(
    lab: Lab, wire: Wire, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    deaths, visit = Deaths(monkeypatch), 0
    while True:
        visit += 1
        conversation = f"{point}-{visit}"
        wire.script(
            "trip",
            [Call("expert", input=wire.prompt("word", f"{conversation}-expert")), Call("book", city="Oslo")],
            [Call("transfer_to_writer")],
            [Call("send", text="hello")],
            "sent",
        )
        AgentState.objects.all().delete()

        deaths.arm(point, visit)
        run = ended(lab, trip_of(wire, conversation))

        assert run.status == "succeeded", (point, visit, run.error, run.status_reason)
        assert run.result == ["writer", "sent"]
        assert AgentState.objects.get(name="booked").value == 1
        asked = sum(wire.asked(conversation).values()) + sum(wire.asked(f"{conversation}-expert").values())
        assert asked <= 5 + deaths.happened, (point, visit, asked)
        assert Step.objects.filter(run=run, kind="model").count() == 5
        if not deaths.happened:
            assert visit > 1
            return
