"""What retention takes of durable runs, and what it must leave."""

from datetime import timedelta
from typing import Any

import pytest

from config import retention
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.exceptions import IllegalState
from runs.models import Approval, Run, Step, Sweep, Wait
from runs.ports import Sought
from runs.retention import prune
from runs.retention.sweep import set_out_afresh
from runs.states import LIVE, RunStatus
from tests.support.journals import make_approval, make_child, make_fork, make_step, make_wait
from tests.support.old_rows import ago, old_event, old_run
from triggers.events.read import find_event
from triggers.models import Event

pytestmark = pytest.mark.django_db


def pruned() -> dict[str, int]:
    return {one.name: one.rows for one in retention.prune() if one.rows}


def durable_run(days: float, **fields: Any) -> Run:
    """A finished one with a step, a wait for an event and an approval, each with something about Ada."""
    run = old_run(old_event(days), days=days, **fields)
    make_step(run, "mail", arguments={"to": "Ada"}, output={"sent": "Ada"}, error="no Ada", usage={"tokens": 3})
    make_wait(
        run, "event", status="done", event_type="invoice.paid", match={"customer": "Ada"}, match_shape='["customer"]',
        match_hash="1f",
    )  # fmt: skip
    make_approval(
        run, question="Call Ada?", detail="Ada owes", arguments={"to": "Ada"}, decided_arguments={"to": "Ada"},
        digest="2f", decided_digest="3f", reason="Ada asked",
    )  # fmt: skip
    return run


def test_the_journal_loses_its_payload_with_its_run_and_keeps_its_rows() -> None:
    run = durable_run(31)

    assert pruned()["runs.payload"] == 1

    step = run.steps.get()
    assert (step.arguments, step.output, step.error, step.usage) == (None, None, "", {"tokens": 3})
    assert (step.key, step.status, step.effect) == ("mail", "done", "transactional")
    waited = run.waits.get(kind="event")
    assert (waited.match, waited.match_hash, waited.event_type) == (None, "", "invoice.paid")
    approval = Approval.objects.get()
    assert (approval.question, approval.detail, approval.reason, approval.arguments) == ("", "", "", None)
    assert (approval.decided_arguments, approval.digest, approval.decided_digest) == (None, "", "")
    assert (approval.decision, approval.decided_by) == ("approve", "admin:bob")


def test_the_journal_goes_with_its_run() -> None:
    durable_run(91)

    assert pruned()["runs"] == 1

    for model in (Run, Step, Wait, Approval):
        assert not model.objects.exists(), model


def test_the_journal_of_a_live_run_stays_however_old() -> None:
    run = durable_run(1000, status=RunStatus.WAITING, finished_at=None)
    waiting = make_wait(run, "event", event_type="invoice.paid", match={"customer": "Ada"}, match_hash="1f")

    pruned()

    assert run.steps.get().output == {"sent": "Ada"}
    assert Wait.objects.get(pk=waiting.pk).match == {"customer": "Ada"}
    assert Approval.objects.get().question == "Call Ada?"


def test_a_run_whose_journal_was_emptied_is_neither_requeued_nor_forked() -> None:
    run = durable_run(31, status=RunStatus.FAILED)
    pruned()

    with pytest.raises(IllegalState, match="payload"):
        requeue(run.id, by="test")
    with pytest.raises(IllegalState, match="payload"):
        fork(run.id, by="test")


# Who may ask for what a run gave


@pytest.mark.parametrize("status", sorted(LIVE - {RunStatus.RUNNING}))
def test_a_child_stays_whole_while_its_parent_lives(status: str) -> None:
    parent = old_run(old_event(100), status=status)
    child = make_child(parent, result={"n": 1}, finished_at=ago(days=95))
    grandchild = make_child(child, result={"n": 2}, finished_at=ago(days=96))

    pruned()

    assert Run.objects.get(pk=child.pk).result == {"n": 1}
    assert Run.objects.get(pk=grandchild.pk).result == {"n": 2}


def test_a_child_stays_whole_while_its_parent_may_be_requeued() -> None:
    parent = old_run(old_event(100), status=RunStatus.FAILED, days=29)
    child = make_child(parent, result={"n": 1}, finished_at=ago(days=95))

    pruned()

    assert Run.objects.get(pk=child.pk).result == {"n": 1}


def test_a_family_goes_together() -> None:
    parent = old_run(old_event(100), days=91)
    child = make_child(parent, finished_at=ago(days=95))
    make_child(child, finished_at=ago(days=96))

    assert pruned()["runs"] == 3

    assert not Run.objects.exists()


def test_a_child_goes_once_its_parent_is_over() -> None:
    parent = old_run(old_event(100), status=RunStatus.WAITING)
    make_child(parent, finished_at=ago(days=95))
    assert "runs" not in pruned()
    Run.objects.filter(pk=parent.pk).update(status="cancelled", finished_at=ago(days=91))

    set_out_afresh(every=timedelta())

    assert pruned()["runs"] == 2


def test_a_child_that_outlived_its_parent_goes_when_its_own_time_comes() -> None:
    parent = old_run(old_event(100), days=95)
    child = make_child(parent, finished_at=ago(days=89))
    pruned()
    assert list(Run.objects.all()) == [child]
    Run.objects.filter(pk=child.pk).update(finished_at=ago(days=91))

    set_out_afresh(every=timedelta())

    assert pruned() == {"runs": 1}


def test_the_origin_of_a_live_fork_stays_whole_and_so_do_its_children() -> None:
    origin = old_run(old_event(100), days=95, status=RunStatus.FAILED)
    child = make_child(origin, result={"n": 1}, finished_at=ago(days=96))
    fork = make_fork(origin, status=RunStatus.WAITING)

    pruned()

    assert Run.objects.get(pk=origin.pk).payload_removed_at is None
    assert Run.objects.get(pk=child.pk).result == {"n": 1}
    Run.objects.filter(pk=fork.pk).update(status="cancelled", finished_at=ago(days=91))
    set_out_afresh(every=timedelta())
    assert pruned()["runs"] == 3


def test_an_event_that_a_live_runs_wait_took_stays() -> None:
    event, other = old_event(100, type="invoice.paid"), old_event(100)
    run = old_run(old_event(101), status=RunStatus.QUEUED)
    make_wait(run, "event", status="done", event_type="invoice.paid", event_id=event.id)

    pruned()

    assert Event.objects.get(pk=event.pk).data == {"name": "Ada"}
    assert not Event.objects.filter(pk=other.pk).exists()


def test_a_wait_that_looks_back_finds_no_event_that_has_lost_its_payload() -> None:
    own = old_event(33)
    run = old_run(own, status=RunStatus.QUEUED, created_at=ago(days=33))
    old_event(32, type="invoice.paid")
    sought = Sought(
        type="invoice.paid", match={}, subject="", run_id=run.id, after_event=own.id, since=run.created_at, but=[],
        root=own.id,
    )  # fmt: skip
    assert find_event(sought).event_id is not None

    pruned()

    assert find_event(sought).event_id is None


def test_an_event_that_a_run_took_loses_its_payload_with_the_runs_own() -> None:
    event = old_event(31)
    run = old_run(old_event(32), days=31)
    make_wait(run, "event", status="done", event_id=event.id)

    assert {one.name: one.rows for one in retention.count() if one.rows} == {"runs.payload": 1, "events.payload": 2}
    assert pruned() == {"runs.payload": 1, "events.payload": 2}


# How much of it at once


def test_a_batch_takes_no_more_runs_than_their_journals_allow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "STEPS", 5)
    runs = [old_run(old_event(100 - number), days=91) for number in range(4)]
    for run, steps in zip(runs, (2, 3, 1, 9), strict=True):
        for number in range(steps):
            make_step(run, f"step:{number}", position=number)
    walk = next(step for step in retention.steps() if step.name == "runs")

    batches = [walk.batch() for _ in range(3)]

    assert [(batch.rows, batch.more) for batch in batches] == [(2, True), (1, True), (1, False)]
    assert not Step.objects.exists()


def test_the_next_batch_begins_where_the_last_one_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prune, "STEPS", 1)
    first, second = (old_run(old_event(days), days=91) for days in (100, 99))
    for run in (first, second):
        make_step(run)
    walk = next(step for step in retention.steps() if step.name == "runs")

    walk.batch()

    assert Sweep.objects.get(name="runs").position == first.id
    assert list(Run.objects.all()) == [second]
