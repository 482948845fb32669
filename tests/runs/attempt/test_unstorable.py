"""What PostgreSQL cannot store fails its run with the reason, and harms no other."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from agents import AgentRun
from runs.actions.approve import decide
from runs.models import Approval, Wait
from tests.support.durable import Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

WISHES: dict[str, Callable[[AgentRun], Any]] = {
    "a match with a UUID": lambda run: run.wait_for_event("paid", match={"id": UUID(int=1)}),
    "a match with no number": lambda run: run.wait_for_event("paid", match={"id": float("nan")}),
    "a match with a value and one below it": lambda run: run.wait_for_event("paid", match={"a": 1, "a.b": 2}),
    "a type with NUL": lambda run: run.wait_for_event("paid\x00"),
    "a key with NUL": lambda run: run.sleep("1d", key="a\x00"),
    "a key that is no Unicode": lambda run: run.step("a", lambda: None, key="\ud800"),
    "a question with NUL": lambda run: run.ask_approval("go\x00?"),
    "a detail that is no text": lambda run: run.ask_approval("go?", detail={"a": 1}),  # type: ignore[arg-type]
    "arguments that are no JSON": lambda run: run.ask_approval("go?", arguments={"at": UUID(int=1)}),
}


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES.keys())
def test_a_value_that_cannot_be_stored_fails_the_run_with_the_reason(lab: Lab, wish: Callable[[AgentRun], Any]) -> None:
    run = lab.run(wish)

    assert (run.status, Wait.objects.count()) == ("failed", 0)
    assert run.error.startswith(("Permanent: ", "ValueError: "))


def test_an_outcome_that_cannot_be_stored_fails_the_run_and_not_the_process(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agents.run._ahead", lambda what, duration: duration)  # as a bug of ours would let it through

    run = lab.run(lambda run: run.sleep(timedelta.max))

    assert run.status == "failed"
    assert "cannot be recorded" in run.error


def test_arguments_with_numbers_as_names_match_on_a_replay(lab: Lab) -> None:
    run = lab.run(lambda run: run.ask_approval("go?", arguments={"a": 1, 2: (3, 4)}).arguments)
    decide(Approval.objects.get().id, decision="approve", by="ada")

    assert lab.go_on(run).result == {"a": 1, "2": [3, 4]}
