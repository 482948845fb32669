"""What people do to durable runs, and how their bodies go on after it."""

from typing import Any

import pytest

from agents import AgentRun, Permanent
from config.health.verify import verify
from runs.actions.approve import decide
from runs.actions.cancel import cancel
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.actions.resolve import resolve
from runs.actions.signal import signal
from runs.db.session import writing
from runs.exceptions import IllegalState
from runs.models import Approval, Attempt, Notification, Run, Wait
from tests.support.durable import Lab, lab

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


class Desk:
    """An agent that looks, asks, refunds at most once, and writes; each as often as `calls` counts."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.fails: set[str] = set()

    def do(self, name: str, *what: Any) -> str:
        self.calls.append((name, *what))
        if name in self.fails:
            raise ValueError(f"no {name}")
        return f"did {name}"

    def body(self, run: AgentRun) -> Any:
        run.step("look", self.do, "look", run.input["who"])
        answer = run.ask_approval("Refund?", arguments={"cents": 1200}, expires="2h")
        if not answer:
            return answer.decision
        run.step("refund", self.do, "refund", answer.arguments["cents"], effect="at_most_once")
        try:
            return run.step("write", self.do, "write")
        except Exception as error:
            raise Permanent("it could not write") from error


@pytest.fixture
def desk() -> Desk:
    return Desk()


def open_approval(run: Run) -> Approval:
    return Approval.objects.get(wait__run=run, wait__status="open")


def approved(lab: Lab, desk: Desk, **decision: Any) -> Run:
    run = lab.run(desk.body, input={"who": "ada"})
    decide(open_approval(run).pk, by="boss", **{"decision": "approve", **decision})
    return lab.go_on(run)


@pytest.mark.parametrize(
    ("decision", "result", "refunds"),
    [
        ({"decision": "approve"}, "did write", [("refund", 1200)]),
        ({"decision": "edit", "arguments": {"cents": 1}}, "did write", [("refund", 1)]),
        ({"decision": "deny"}, "denied", []),
    ],
)
def test_a_body_gets_the_decision(
    decision: dict[str, Any], result: str, refunds: list[Any], lab: Lab, desk: Desk
) -> None:
    run = approved(lab, desk, **decision)

    assert (run.status, run.result) == ("succeeded", result)
    assert [call for call in desk.calls if call[0] == "refund"] == refunds
    assert desk.calls.count(("look", "ada")) == 1


def cancel_meanwhile(run: AgentRun) -> None:
    with writing():  # as another process would: this one's sessions only read
        cancel(run.id, by="ada")


def test_a_cancel_of_a_running_run_wins_over_its_wait(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        cancel_meanwhile(run)
        run.ask_approval("Really?")

    run = lab.run(body)

    assert (run.status, run.status_reason) == ("cancelled", "cancelled")
    assert not Wait.objects.exists()
    assert not Notification.objects.exists()
    assert Attempt.objects.get().outcome == "waiting"


def test_a_cancel_of_a_running_run_wins_over_its_uncertain_step(lab: Lab) -> None:
    def send(run: AgentRun) -> None:
        cancel_meanwhile(run)
        raise ConnectionError("no answer")

    run = lab.run(lambda run: run.step("send", send, run, effect="at_most_once"))

    assert run.status == "cancelled"
    assert run.steps.get().status == "started"
    requeue(run.id, by="ada")
    assert lab.go_on(run).status == "uncertain"


# --- Fork ---


def test_a_fork_from_the_failed_step_repeats_nothing_before_it(lab: Lab, desk: Desk) -> None:
    desk.fails.add("write")
    run = approved(lab, desk)
    assert run.status == "failed"
    desk.fails.clear()
    desk.calls.clear()

    new = lab.go_on(fork(run.id, step="write", by="ada"))

    assert (new.status, new.result) == ("succeeded", "did write")
    assert desk.calls == [("write",)]
    assert verify().violated == []


def test_a_fork_that_would_refund_again_needs_another_approval(lab: Lab, desk: Desk) -> None:
    run = approved(lab, desk)

    new = lab.go_on(fork(run.id, step="refund", by="ada"))

    assert new.status == "waiting"
    again = open_approval(new)
    assert again.pk != Approval.objects.get(wait__run=run).pk and again.wait.due_at is not None
    assert "Asks again for approval" in Notification.objects.order_by("created_at").last().text  # type: ignore[union-attr]
    decide(again.pk, decision="edit", arguments={"cents": 5}, by="boss")
    assert lab.go_on(new).status == "succeeded"
    assert [call for call in desk.calls if call[0] in ("look", "refund")] == [
        ("look", "ada"), ("refund", 1200), ("refund", 5),
    ]  # fmt: skip
    assert verify().violated == []


def test_a_waiting_run_that_is_forked_leaves_the_question_to_its_fork(lab: Lab, desk: Desk) -> None:
    run = lab.run(desk.body, input={"who": "ada"})
    old = open_approval(run)

    new = lab.go_on(fork(run.id, step=old.wait.key, by="ada"))

    assert (Run.objects.get(pk=run.pk).status, new.status) == ("cancelled", "waiting")
    with pytest.raises(IllegalState, match="closed"):
        decide(old.pk, decision="approve", by="boss")
    decide(open_approval(new).pk, decision="deny", by="boss")
    assert lab.go_on(new).result == "denied"
    assert verify().violated == []


# --- Resolve ---


def uncertain(lab: Lab, desk: Desk) -> Run:
    desk.fails.add("refund")
    run = approved(lab, desk)
    assert run.status == "uncertain"
    desk.fails.clear()
    desk.calls.clear()
    return run


@pytest.mark.parametrize(
    ("outcome", "calls"), [("happened", [("write",)]), ("did_not_happen", [("refund", 1200), ("write",)])]
)
def test_a_body_gets_the_output_that_a_person_entered(outcome: Any, calls: list[Any], lab: Lab, desk: Desk) -> None:
    run = uncertain(lab, desk)
    assert run.steps.get(key="refund").arguments == ["refund", 1200]

    resolve(run.id, outcome=outcome, result="did refund" if outcome == "happened" else None, by="ada")

    assert lab.go_on(run).status == "succeeded"
    assert desk.calls == calls
    assert verify().violated == []


def test_a_run_that_was_let_fail_can_be_forked_where_it_was_parked(lab: Lab, desk: Desk) -> None:
    run = uncertain(lab, desk)
    resolve(run.id, outcome="fail", by="ada")

    new = lab.go_on(fork(run.id, step="refund", by="ada"))

    assert (new.status, desk.calls) == ("waiting", [])  # it might have happened: so it asks again


# --- Signal ---


def test_a_fork_knows_the_signal_that_the_first_run_was_given(lab: Lab, desk: Desk) -> None:
    def body(run: AgentRun) -> list[Any]:
        return [run.wait_for_signal("go").data, run.step("write", desk.do, "write"), run.wait_for_signal("on").data]  # type: ignore[union-attr]

    run = lab.run(body)
    signal(run.id, name="go", data=1, by="ada")
    run = lab.go_on(run)

    new = lab.go_on(fork(run.id, step="write", by="ada"))
    assert new.status == "waiting"
    signal(new.id, name="on", data=2, by="ada")

    assert lab.go_on(new).result == [1, "did write", 2]
