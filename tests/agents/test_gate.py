"""A gate's answer as a value, and gates in a user's tests."""

from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from agents import Fire, GateRun, Permanent, Quiet, agent
from agents.exceptions import DeclarationError
from agents.gate import MOST_BYTES, checked
from agents.state import State
from agents.testing import ask_gate, run_agent


def watch(gate: Any, body: Any = lambda run: None, **declared: Any) -> Any:
    return agent("watch", gate=gate, **declared)(body)


def test_gate_answers_compare_by_value() -> None:
    assert Fire("a", data=1, state=2) == Fire("a", 1, 2)
    assert Quiet("a") != Quiet("b")


@pytest.mark.parametrize("reason", ["", None, 3])
@pytest.mark.parametrize("answer", [Fire, Quiet])
def test_an_answer_has_a_reason(answer: Any, reason: Any) -> None:
    with pytest.raises(ValueError, match="non-empty text"):
        answer(reason)


def test_a_state_of_the_largest_size_is_kept() -> None:
    largest = "x" * (MOST_BYTES - 2)  # and two quotes

    assert checked(Fire("a", state=largest), "watch") == Fire("a", state=largest)
    with pytest.raises(Permanent, match="16,385 bytes"):
        checked(Fire("a", state=largest + "x"), "watch")


def test_a_long_reason_is_cut() -> None:
    assert len(checked(Quiet("x" * 1000), "watch").reason) == 500


async def coroutine(run: GateRun) -> Quiet:
    return Quiet("no")


@pytest.mark.parametrize("gate", [coroutine, "no function"])
def test_a_gate_is_a_plain_function(gate: Any) -> None:
    with pytest.raises(DeclarationError, match="gate must be a plain function"):
        watch(gate)


@pytest.mark.django_db
def test_ask_gate_calls_a_gate_with_state_event_and_last_answer() -> None:
    State("watch").set("threshold", 5)

    def gate(run: GateRun) -> Fire | Quiet:
        if run.event.data <= run.state.get("threshold") or run.event.data == run.last:
            return Quiet(f"{run.event.data} is not new")
        return Fire("above", data=run.input, state=run.event.data)

    made = watch(gate)

    assert ask_gate(made, data=4) == Quiet("4 is not new")
    assert ask_gate(made, data=6, last=6) == Quiet("6 is not new")
    assert ask_gate(made, data=6) == Fire("above", data=6, state=6)


@pytest.mark.django_db
def test_a_gate_in_a_test_may_not_write() -> None:
    def gate(run: GateRun) -> Quiet:
        Group.objects.create(name="written")
        return Quiet("wrote")

    with pytest.raises(Permanent, match="a gate only reads"), transaction.atomic():
        ask_gate(watch(gate))


@pytest.mark.django_db
@pytest.mark.parametrize("durable", [False, True])
def test_a_test_hands_the_answer_to_the_body(durable: bool) -> None:
    made = watch(lambda run: Quiet("no"), lambda run: run.fired and run.fired.data, durable=durable)

    assert run_agent(made, fired=Fire("a", data=7)).result == 7
    assert run_agent(made).result is None


def test_ask_gate_refuses_an_agent_without_a_gate() -> None:
    with pytest.raises(ValueError, match="has no gate"):
        ask_gate(watch(None))
