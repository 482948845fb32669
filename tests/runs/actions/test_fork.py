"""A fork begins where an earlier run had come to, and no two ever do the same work."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from runs.actions import fork as forking
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.exceptions import IllegalState
from runs.models import NIL, Approval, AuditEntry, Run, Step, Wait, Worker
from runs.states import RunStatus
from runs.transitions.lock import lock_run
from tests.runs.actions.test_approve import elsewhere
from tests.support.journals import make_approval, make_child, make_step, make_wait
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def make_failed(**fields: Any) -> Run:
    """A run that has done `a`, slept and done `b`, and failed at `c`."""
    run = make_run(status=RunStatus.FAILED, **fields)
    make_step(run, "a", output={"n": 1}, attempts=2)
    make_wait(run, status="done", key="sleep#1")
    make_step(run, "b", effect="idempotent", is_keyed=True)
    make_step(run, "c", status="failed", error="boom", error_kind="ValueError")
    return run


def journal_of(run: Run) -> list[str]:
    entries = [*run.steps.values_list("position", "key"), *run.waits.values_list("position", "key")]
    return [key for _, key in sorted(entries)]


def make_running(run: Run) -> None:
    worker = Worker.objects.create(kind="worker", host="h", pid=1, version="1", concurrency=1)
    now = timezone.now()
    owned = {"worker_id": worker.id, "pid": 1, "claimed_at": now, "deadline_at": now + timedelta(hours=1)}
    Run.objects.filter(pk=run.pk).update(status=RunStatus.RUNNING, ready_at=None, **owned)


def test_a_fork_copies_the_journal_entries_before_its_step() -> None:
    origin = make_failed()

    new = fork(origin.id, step="c", by="ada")

    assert journal_of(new) == ["a", "sleep#1", "b"]
    copied = ("output", "attempts", "position", "is_keyed", "effect", "started_at", "ended_at")
    assert list(new.steps.order_by("position").values(*copied)) == list(
        origin.steps.order_by("position").values(*copied)[:2]
    )
    assert new.waits.get().status == "done"


def test_a_fork_is_the_same_work_under_a_name_of_its_own() -> None:
    origin = make_failed(input={"a": 1}, chain=["first"], depth=2, policy={"queue": "slow", "retries": 7}, priority=5)

    new = fork(origin.id, by="ada")

    same = ("agent", "trigger", "trigger_id", "event_ids", "root_id", "depth", "chain", "input", "key")
    assert [getattr(new, name) for name in same] == [getattr(origin, name) for name in same]
    assert (new.queue, new.policy["retries"]) == ("slow", 7)
    assert (new.forked_from_id, new.status, new.ready_at is not None) == (origin.id, "queued", True)
    assert new.id.bytes[:6] == origin.id.bytes[:6] and new.id != origin.id
    assert new.replay_id not in (UUID(NIL), origin.replay_id)
    assert journal_of(new) == []


def test_each_fork_is_another_run() -> None:
    origin = make_failed()

    assert fork(origin.id, by="ada").id != fork(origin.id, by="ada").id


def test_a_fork_may_be_given_another_input() -> None:
    origin = make_failed(input={"a": 1})

    assert fork(origin.id, input={"a": 2}, has_input=True, by="ada").input == {"a": 2}
    assert fork(origin.id, input=None, has_input=True, by="ada").input is None
    assert fork(make_failed().id, by="ada").input is None


def test_a_fork_may_begin_at_a_wait() -> None:
    assert journal_of(fork(make_failed().id, step="sleep#1", by="ada")) == ["a"]


def test_an_entry_that_the_journal_does_not_have_is_no_place_to_begin() -> None:
    origin = make_failed()

    with pytest.raises(ValueError, match="has no entry 'nowhere'"):
        fork(origin.id, step="nowhere", by="ada")

    assert Run.objects.count() == 1


def test_a_step_that_failed_is_copied_with_its_error() -> None:
    origin = make_failed()
    make_step(origin, "d")

    step = fork(origin.id, step="d", by="ada").steps.get(key="c")

    assert (step.status, step.error, step.error_kind) == ("failed", "boom", "ValueError")


def test_an_unproved_step_cannot_be_copied_by_a_fork() -> None:
    origin = make_run(status=RunStatus.UNCERTAIN)
    make_step(origin, "charge", status="started")
    make_step(origin, "later", is_keyed=True)

    with pytest.raises(IllegalState, match="'charge' comes before that step and is not finished"):
        fork(origin.id, step="later", by="ada")
    assert journal_of(fork(origin.id, step="charge", by="ada")) == []


def test_an_unfinished_wait_cannot_be_copied_by_a_fork() -> None:
    origin = make_run(status=RunStatus.WAITING)
    make_wait(origin, key="sleep#1")
    make_step(origin, "parallel", is_keyed=True)

    with pytest.raises(IllegalState, match="'sleep#1' comes before that"):
        fork(origin.id, step="parallel", by="ada")


def test_a_run_without_its_payload_cannot_be_forked() -> None:
    origin = make_failed(payload_removed_at=timezone.now())

    with pytest.raises(IllegalState, match="removed its payload"):
        fork(origin.id, by="ada")


def test_a_copied_decision_does_not_change() -> None:
    origin = make_run(status=RunStatus.FAILED)
    approval = make_approval(
        origin, question="Refund?", arguments={"cents": 1}, digest="d1", decided_arguments={"cents": 1}
    )
    failed = make_step(origin, "refund", status="failed")

    new = fork(origin.id, step=failed.key, by="ada")

    copy = Approval.objects.get(wait__run=new)
    assert copy.pk != approval.pk
    same = ("question", "arguments", "digest", "decision", "decided_arguments", "decided_by", "decided_at", "status")
    assert [getattr(copy, name) for name in same] == [getattr(approval, name) for name in same]


def make_refunded(effect: str = "idempotent", status: str = "done") -> Run:
    """A run that was allowed to refund, has done it, and failed at what came then."""
    origin = make_run(status=RunStatus.FAILED)
    make_approval(origin, decided_arguments={"cents": 1}, decided_digest="d1", reason="fine")
    make_step(origin, "refund", effect="at_most_once" if status == "started" else effect, status=status)
    make_step(origin, "mail", status="failed")
    return origin


@pytest.mark.parametrize("status", ["done", "started", "failed"])  # a call that failed may have arrived
def test_a_fork_that_repeats_an_approved_step_needs_another_approval(status: str) -> None:
    origin = make_refunded(status=status)
    asked_at = timezone.now() - timedelta(hours=3)
    Wait.objects.update(created_at=asked_at, due_at=asked_at + timedelta(hours=2))

    copy = Approval.objects.get(wait__run=fork(origin.id, step="refund", by="ada"))

    assert (copy.status, copy.decision, copy.decided_by, copy.decided_arguments) == ("closed", "", "", None)
    assert copy.wait.due_at is not None
    assert abs(copy.wait.due_at - timezone.now() - timedelta(hours=2)) < timedelta(minutes=1)
    assert Approval.objects.get(wait__run=origin).decided_by == "admin:bob"


@pytest.mark.parametrize(
    ("origin", "step"),
    [(("idempotent", "done"), "mail"), (("transactional", "failed"), "refund"), (("read", "done"), "refund")],
)
def test_a_fork_before_the_approved_step_needs_no_second_decision(origin: tuple[str, str], step: str) -> None:
    copy = Approval.objects.get(wait__run=fork(make_refunded(*origin).id, step=step, by="ada"))

    assert (copy.status, copy.decided_by, copy.wait.status) == ("approved", "admin:bob", "done")


def test_a_decision_is_good_for_one_fork() -> None:
    origin = make_refunded("transactional", "failed")

    first, second = (fork(origin.id, step="refund", by="ada") for _ in range(2))

    assert Approval.objects.get(wait__run=first).status == "approved"
    assert Approval.objects.get(wait__run=second).status == "closed"


def test_a_denial_is_not_requested_again() -> None:
    origin = make_refunded()
    Approval.objects.update(decision="deny")

    assert Approval.objects.get(wait__run=fork(origin.id, step="refund", by="ada")).status == "denied"


def test_children_stay_those_of_the_first_run() -> None:
    origin = make_run(status=RunStatus.FAILED)
    child = make_child(origin)
    make_wait(origin, "children", status="done", key="children#1", children=[child.id])
    make_step(origin, "after")

    new = fork(origin.id, step="after", by="ada")

    assert new.waits.get().children == [child.id]
    assert Run.objects.filter(parent_id=origin.id).count() == 1
    assert not Run.objects.filter(parent_id=new.id).exists()


def test_the_fork_of_a_child_has_no_parent() -> None:
    parent = make_run(status=RunStatus.SUCCEEDED)
    child = make_child(parent, status=RunStatus.FAILED)

    new = fork(child.id, by="ada")

    assert (new.parent_id, new.root_id, new.id.bytes[:6]) == (None, child.root_id, parent.id.bytes[:6])


def test_every_fork_is_in_the_audit_log() -> None:
    origin = make_failed()

    new = fork(origin.id, step="c", input={"secret": 1}, has_input=True, by="ada")

    entry = AuditEntry.objects.get()
    assert (entry.by, entry.action, entry.object_id) == ("ada", "fork", str(origin.id))
    assert entry.detail == {
        "fork": str(new.id),
        "step": "c",
        "position": Step.objects.get(run=origin, key="c").position,
        "new_input": True,
    }


# --- One of the two goes on ---


@pytest.mark.parametrize("status", [RunStatus.QUEUED, RunStatus.WAITING, RunStatus.UNCERTAIN])
def test_an_unfinished_run_that_is_forked_is_closed(status: RunStatus) -> None:
    origin = make_run(status=status)
    if status == RunStatus.WAITING:
        make_wait(origin, "event", event_type="x", key="event:x#1")

    new = fork(origin.id, by="ada")

    origin.refresh_from_db()
    assert (origin.status, origin.status_reason) == ("cancelled", "cancelled by ada, who forked it")
    assert not Wait.objects.filter(status="open").exists()
    assert new.status == "queued"


def test_a_fork_takes_its_turn_behind_its_key() -> None:
    origin = make_run(status=RunStatus.WAITING, key="t:k", slot=1)
    blocked = make_run(key="t:k", ready_at=None)

    new = fork(origin.id, by="ada")

    blocked.refresh_from_db()
    assert (blocked.slot, blocked.ready_at is not None) == (1, True)
    assert (new.key, new.slot, new.ready_at, new.due_at) == ("t:k", None, None, None)


def test_a_fork_whose_key_is_free_is_ready() -> None:
    new = fork(make_failed(key="t:k").id, by="ada")

    assert (new.slot, new.ready_at is not None) == (1, True)


def test_a_run_that_was_forked_is_not_requeued() -> None:
    origin = make_failed()
    new = fork(origin.id, by="ada")

    with pytest.raises(IllegalState, match=f"was forked and run {new.id} continues its work"):
        requeue(origin.id, by="ada")


def test_a_running_run_is_forked_once_it_has_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = make_run()
    make_step(origin, "a")
    make_step(origin, "b")
    make_running(origin)

    def stops(run_id: UUID, patience: float) -> None:
        run = Run.objects.get(pk=run_id)
        assert run.cancel_requested_at is not None
        make_step(run, "c")  # what it still did before it noticed the fork
        Run.objects.filter(pk=run_id).update(status=RunStatus.CANCELLED, finished_at=timezone.now())

    monkeypatch.setattr(forking, "watch", stops)
    new = fork(origin.id, step="b", by="ada")

    assert journal_of(new) == ["a"]


def test_a_running_run_that_does_not_stop_in_time_is_not_forked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "STOPS_WITHIN", 0.1)
    origin = make_run()
    make_running(origin)

    with pytest.raises(IllegalState, match="is running, and is being stopped") as refusal:
        fork(origin.id, by="ada")

    assert refusal.value.status == "running"
    assert Run.objects.get().cancel_requested_at is not None


def test_a_run_that_starts_while_it_is_forked_is_not_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    origin = make_run()

    def lock_late(run_id: UUID) -> Run:
        make_running(origin)
        return lock_run(run_id)

    monkeypatch.setattr(forking, "lock_run", lock_late)

    with pytest.raises(IllegalState, match="has just started"):
        fork(origin.id, by="ada")

    assert Run.objects.count() == 1


def test_a_running_run_that_cannot_be_forked_is_not_stopped() -> None:
    origin = make_run()
    make_running(origin)

    with pytest.raises(ValueError, match="no entry"):
        fork(origin.id, step="nowhere", by="ada")

    assert Run.objects.get().cancel_requested_at is None


def test_a_running_run_that_finishes_first_has_won(monkeypatch: pytest.MonkeyPatch) -> None:
    origin = make_run()
    make_running(origin)

    def succeeds(run_id: UUID, patience: float) -> None:
        Run.objects.filter(pk=run_id).update(status=RunStatus.SUCCEEDED, finished_at=timezone.now())

    monkeypatch.setattr(forking, "watch", succeeds)

    with pytest.raises(IllegalState, match="succeeded before it could be stopped"):
        fork(origin.id, by="ada")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("key", [None, "t:k"])
def test_a_simultaneous_requeue_and_fork_leave_one_queued_run(key: str | None) -> None:
    for _ in range(5):
        origin = make_failed(key=f"{key}{uuid4()}" if key else None)

        elsewhere(lambda id=origin.id: fork(id, by="ada"), lambda id=origin.id: requeue(id, by="bob"))  # type: ignore[misc]

        work = Run.objects.filter(root_id=origin.root_id)
        assert work.filter(status=RunStatus.QUEUED).count() == 1
