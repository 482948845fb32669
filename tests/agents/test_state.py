"""State is compare-and-set: what a run wrote stands on what it read."""

from threading import Barrier, Thread
from typing import Any

import pytest
from django.db import connection, transaction

from agents.exceptions import StateConflict
from agents.models import AgentState
from agents.state import State


@pytest.mark.django_db
def test_a_value_never_set_is_the_default() -> None:
    assert State("greeter").get("seen") is None
    assert State("greeter").get("seen", 0) == 0


@pytest.mark.django_db
@pytest.mark.parametrize("value", [None, 0, "", [], {"a": [1, {"b": None}]}, "Zürich"])
def test_a_value_comes_back_as_it_was_set_and_belongs_to_its_agent(value: Any) -> None:
    State("greeter").set("seen", value)

    assert State("greeter").get("seen", "default") == value
    assert State("other").get("seen", "default") == "default"


@pytest.mark.django_db
def test_a_run_sees_what_it_has_set_and_may_set_it_again() -> None:
    state = State("greeter")

    state.set("seen", 1)
    state.set("seen", state.get("seen") + 1)

    assert state.get("seen") == 2
    assert AgentState.objects.get(agent="greeter").revision == 2


@pytest.mark.django_db
def test_a_value_that_changed_since_it_was_read_is_not_overwritten() -> None:
    mine, theirs = State("greeter"), State("greeter")
    mine.get("seen")
    theirs.set("seen", "theirs")

    with pytest.raises(StateConflict, match="'seen' of agent 'greeter'"):
        mine.set("seen", "mine")
    assert State("greeter").get("seen") == "theirs"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_new", [True, False])
def test_exactly_one_of_several_runs_that_read_the_same_value_writes(is_new: bool) -> None:
    if not is_new:
        State("greeter").set("seen", 0)
    outcomes = at_once(5, add_one)

    assert sorted(outcomes) == ["conflict"] * 4 + ["written"]
    assert State("greeter").get("seen") == 1


def add_one(barrier: Barrier) -> str:
    state = State("greeter")
    try:
        with transaction.atomic():
            seen = state.get("seen", 0)
            barrier.wait(timeout=60)
            state.set("seen", seen + 1)
    except StateConflict:
        return "conflict"
    return "written"


def at_once(count: int, action: Any) -> list[str]:
    """What `count` threads came to, each with a connection of its own; the barrier is where they meet."""
    barrier, outcomes = Barrier(count), []

    def run() -> None:
        try:
            outcomes.append(action(barrier))
        finally:
            connection.close()

    threads = [Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return outcomes
