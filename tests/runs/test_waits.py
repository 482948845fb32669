"""A waiting run is a row; whatever it waits for wakes it once, also what came before the wait was there."""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from django.db.models.functions import Now

import agents
from agents import AgentRun, ApprovalExpired
from agents.journal.canonical import digest_of
from runs import waits
from runs.actions.approve import decide
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.durable import journal_rows
from runs.models import Approval, Attempt, Notification, OutboxMessage, Run, Wait
from runs.ports import ports
from runs.states import RunStatus
from tests.support.durable import Lab, lab
from tests.support.triggers import make_event, make_trigger
from triggers.models import Event

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


def paid(run: AgentRun) -> Any:
    event = run.wait_for_event("invoice.paid", match={"customer.id": 7}, timeout="7d")
    return event and event.data["number"]


def test_an_event_that_matches_wakes_the_run_and_is_given_to_it(lab: Lab) -> None:
    run = lab.run(paid)
    make_event(type="invoice.paid", data={"customer": {"id": 8}, "number": 1})
    make_event(type="invoice.sent", data={"customer": {"id": 7}, "number": 2})
    make_event(type="invoice.paid", data={"customer": 7, "number": 3})
    make_event(type="invoice.paid", data=None)
    assert lab.go_on(run).status == "waiting"

    wanted = make_event(type="invoice.paid", data={"customer": {"id": 7.0}, "number": 4})
    run = lab.go_on(run)

    assert (run.status, run.result) == ("succeeded", 4)
    assert Wait.objects.get().event_id == wanted.id


def test_an_event_that_came_before_the_wait_is_not_missed(lab: Lab) -> None:
    def body(run: AgentRun) -> Any:
        run.step(
            "provoke", lambda: make_event(type="invoice.paid", data={"customer": {"id": 7}, "number": 4}).pk and None
        )
        run.step("see it dispatched", lambda: None)
        return paid(run)

    assert lab.run(body).result == 4


def test_a_wait_ignores_events_from_before_the_run(lab: Lab) -> None:
    make_event(type="invoice.paid", data={"customer": {"id": 7}, "number": 4})
    lab.look()

    assert lab.run(paid).status == "waiting"


def test_each_wait_takes_an_event_of_its_own_in_their_order(lab: Lab) -> None:
    def body(run: AgentRun) -> list[Any]:
        run.step(
            "provoke",
            lambda: [make_event(type="tick", data={"n": n}).pk for n in (1, 2)] and None,
        )
        return [found.data["n"] for found in (run.wait_for_event("tick"), run.wait_for_event("tick")) if found]

    assert lab.run(body).result == [1, 2]


def test_a_replay_reads_the_events_of_earlier_waits_some_at_once(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = sizes_of_reads(monkeypatch)
    monkeypatch.setattr(journal_rows, "AT_ONCE", 3)

    def body(run: AgentRun) -> list[Any]:
        run.step("provoke", lambda: [make_event(type="tick", data={"n": n}).pk for n in range(5)] and None)
        return [found.data["n"] for found in (run.wait_for_event("tick") for _ in range(6)) if found]

    run = lab.run(body)
    assert run.status == "waiting"
    sizes.clear()
    make_event(type="tick", data={"n": 5})

    assert lab.go_on(run).result == [0, 1, 2, 3, 4, 5]
    assert sizes == [3, 3]


def test_a_replay_reads_large_events_one_by_one(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty at once of those that WAKEFUL_MAX_BODY allows would be 500 MB."""
    sizes = sizes_of_reads(monkeypatch)

    def body(run: AgentRun) -> list[Any]:
        run.step("provoke", lambda: [make_event(type="tick", data=tick(n)).pk for n in range(5)] and None)
        return [found.data["n"] for found in (run.wait_for_event("tick") for _ in range(6)) if found]

    def tick(number: int) -> dict[str, Any]:
        """The third and the fourth are large."""
        return {"n": number, "list": list(range(100_000 if number in (2, 3) else 0))}

    run = lab.run(body)
    sizes.clear()
    make_event(type="tick", data=tick(5))

    assert lab.go_on(run).result == [0, 1, 2, 3, 4, 5]
    # Of six, the small ones; then each large one, with the small ones after it.
    assert sizes == [4, 3, 3]


def sizes_of_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each statement reads."""
    read_ahead, sizes = ports.read_ahead, list[int]()

    def read(id: UUID, others: Sequence[UUID]) -> list[agents.Event]:
        events = read_ahead(id, others)
        sizes.append(len(events))
        return events

    monkeypatch.setattr(ports, "read_ahead", read)
    return sizes


def test_a_wait_whose_time_is_over_gives_nothing(lab: Lab) -> None:
    run = lab.later(lab.run(paid))

    assert (run.status, run.result, Wait.objects.get().status) == ("succeeded", None, "expired")


def test_the_dispatcher_looks_back_if_the_worker_died_first(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    def provoke() -> None:
        make_event(type="tick", data={"n": 1})
        Event.objects.update(dispatched_at=Now())

    def body(run: AgentRun) -> Any:
        run.step("provoke", provoke)
        found = run.wait_for_event("tick")
        return found and found.data["n"]

    monkeypatch.setattr("runs.executor.look_back", lambda *_: None)
    monkeypatch.setattr("runs.durable.store.find_early", lambda *_, **__: None)
    run = lab.run(body)
    assert run.status == "waiting"
    assert waits.look_back() == 1

    assert lab.go_on(run).result == 1


def test_a_look_back_is_done_once(lab: Lab) -> None:
    lab.run(paid)

    assert Wait.objects.get().looked_at
    assert waits.look_back() == 0


def approve(run: AgentRun) -> Any:
    answer = run.ask_approval("Refund?", arguments={"cents": 100}, expires="2d")
    return [answer.decision, bool(answer), answer.arguments, answer.by, answer.reason]


def test_a_large_number_in_an_approval_is_the_same_after_it_was_stored(lab: Lab) -> None:
    run = lab.run(lambda run: run.ask_approval("Go?", arguments={"many": [1e16, 2.0, 0.5]}).decision)
    approval = Approval.objects.get()
    assert digest_of(approval.question, approval.arguments) == approval.digest
    decide(approval.id, decision="approve", by="ada")

    assert lab.go_on(run).result == "approved"


def test_a_question_hides_nothing_from_the_person_who_answers(lab: Lab) -> None:
    run = lab.run(lambda run: run.ask_approval("Pay \u202e03 EUR?", detail="to \u2066Ada").decision)
    approval = Approval.objects.get()
    assert (approval.question, approval.detail) == ("Pay \\u202e03 EUR?", "to \\u2066Ada")
    decide(approval.id, decision="approve", by="ada")

    assert lab.go_on(run).result == "approved"


def test_an_expired_approval_counts_as_denied(lab: Lab) -> None:
    run = lab.later(lab.run(approve))

    assert run.result == ["expired", False, {"cents": 100}, "", ""]
    assert Approval.objects.get().status == "expired"


def test_an_expired_approval_may_fail_the_run(lab: Lab) -> None:
    run = lab.later(lab.run(lambda run: run.ask_approval("Go?", expires="1h", on_expiry="fail") and None))

    assert run.status == "failed"
    assert ApprovalExpired.__name__ in run.error


def test_an_approval_counts_for_its_own_question_only(lab: Lab) -> None:
    run = lab.run(approve)
    decide(Approval.objects.get().id, decision="approve", by="ada")
    lab.declare(lambda run: run.ask_approval("Refund?", arguments={"cents": 100_000}) and None)

    assert lab.go_on(run).status == "uncertain"


def test_a_cancelled_wait_is_closed_and_a_requeue_opens_it_again(lab: Lab) -> None:
    run = lab.run(approve)
    due_at = Wait.objects.get().due_at
    cancel(run.id, by="test")
    assert Wait.objects.get().status == "closed"
    assert Approval.objects.get().status == "closed"

    requeue(run.id, by="test")
    run = lab.go_on(run)

    assert (run.status, Wait.objects.get().status, Wait.objects.get().due_at) == ("waiting", "open", due_at)
    link = f"approval:{Approval.objects.get().pk}"
    assert list(Notification.objects.values_list("topic", "link")) == [(link, link)]
    decide(Approval.objects.get().id, decision="approve", by="ada")
    assert lab.go_on(run).status == "succeeded"


def test_a_waiting_run_frees_its_key_unless_it_holds_it(lab: Lab) -> None:
    key: dict[str, Any] = {"key": f"{UUID(int=1)}:k", "slot": 1}
    free = lab.run(lambda run: run.sleep("1d"), policy={"overlap": "skip"}, **key)
    assert (free.status, free.slot) == ("waiting", None)

    queued = lab.run(lambda run: run.sleep("1d"), policy={"overlap": "queue"}, **key)
    assert (queued.status, queued.slot) == ("waiting", 1)


def test_a_woken_run_lines_up_for_its_key(lab: Lab) -> None:
    key = f"{UUID(int=1)}:k"
    run = lab.run(lambda run: run.sleep("1d"), policy={"overlap": "skip"}, key=key, slot=1)
    other = lab.run(lambda run: run.sleep("9d"), policy={"overlap": "skip", "hold_key": True}, key=key, slot=1)
    assert other.slot == 1
    lab.declare(lambda run: run.sleep("1d"))
    Wait.objects.filter(run=run).update(due_at=Now())
    assert lab.go_on(run).status == RunStatus.QUEUED

    cancel(other.id, by="test")

    assert lab.go_on(run).status == "succeeded"


def test_a_gathered_result_does_not_change(lab: Lab) -> None:
    seen: list[Any] = []

    def body(run: AgentRun) -> None:
        seen.append([end.status for end in run.join(run.spawn("child"))])
        run.step("use", lambda: None)
        run.sleep("1d")

    def fail(run: AgentRun) -> None:
        raise ValueError("no")

    lab.declare(fail, name="child", retries=0)
    run = lab.run(body)
    lab.declare(lambda run: None, name="child")
    requeue(Run.objects.get(parent_id=run.id).id, by="test")
    lab.go_on(run)
    lab.later(run)

    assert seen == [["failed"], ["failed"]]


@pytest.mark.parametrize(
    ("data", "own"), [(None, {"id": 7}), ({"n": 1}, {"id": 7, "n": 1}), ({"id": 8}, {"id": 8}), ("text", "text")]
)
def test_a_wake_has_the_data_of_the_event_updated_with_its_own(lab: Lab, data: Any, own: Any) -> None:
    lab.run(lambda run: run.wake_in("1d", data), data={"id": 7})

    assert OutboxMessage.objects.get(topic="wakeup").payload["data"] == own


def test_a_run_woken_by_time_begins_a_new_chain(lab: Lab) -> None:
    run = lab.run(lambda run: run.sleep("1d"), depth=5, chain=["a", "b"])
    run = lab.later(run)

    assert (run.depth, run.chain) == (0, [])


def test_an_attempt_that_ends_in_a_wait_keeps_its_number(lab: Lab) -> None:
    run = lab.later(lab.run(lambda run: run.sleep("1d")))

    assert [(one.number, one.outcome) for one in run.attempts.all()] == [(1, "waiting"), (1, "succeeded")]
    assert Attempt.objects.count() == 2


def test_the_code_decides_that_an_agent_is_durable_not_the_trigger(lab: Lab) -> None:
    lab.declare(lambda run: run.sleep("1d"), hold_key=True)
    make_trigger(agent="durable", types=["go"], overlap="skip", policy={"retries": 1})
    make_event(type="go")
    lab.look()

    policy = Run.objects.get().policy
    assert (policy["durable"], policy["hold_key"], policy["retries"], policy["timeout"]) == (True, True, 1, 900.0)
