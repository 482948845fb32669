"""Databases made by hand, each with one promise broken: `verify` names it, and nothing else."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from uuid_utils.compat import uuid7

from agents.journal.canonical import digest_of
from config.health.verify import invariants_in, verify
from runs.actions.requeue import requeue
from runs.models import NIL, Attempt, OutboxMessage, ProcessedEvent, Run, Wait
from runs.retention.payloads import remove_payloads
from tests.support.journals import make_approval, make_child, make_fork, make_step, make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_trigger
from triggers.accept import builtin_source
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Decision, Event, Source, SwitchTimer

pytestmark = pytest.mark.django_db

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RETRIES = {"retries": 3, "overlap": "queue"}


def make_attempt(
    run: Run, number: int = 1, *, outcome: str = "failed", epoch: int = 0, at: float = 0.0, seconds: float = 1.0
) -> None:
    began = NOON + timedelta(seconds=at)
    Attempt.objects.create(
        run=run, epoch=epoch or number, number=number, outcome=outcome, started_at=began, ended_at=began + timedelta(seconds=seconds)
    )  # fmt: skip


def make_success(*, at: float = 0.0, ledger: bool = True, **fields: Any) -> Run:
    run = make_run(status="succeeded", attempt=1, epoch=1, policy=RETRIES, **fields)
    make_attempt(run, outcome="succeeded", at=at)
    for event in run.event_ids if ledger else ():
        ProcessedEvent.objects.create(event_id=event, consumer=run.trigger, replay_id=NIL, run_id=run.id)
    return run


def violated(**how: Any) -> list[str]:
    return [finding.name for finding in verify(**how).violated]


def a_success_without_its_ledger() -> None:
    make_success(ledger=False)


def a_failure_in_the_ledger() -> None:
    run = make_run(status="failed", policy=RETRIES)
    ProcessedEvent.objects.create(event_id=run.event_ids[0], consumer=run.trigger, replay_id=NIL, run_id=run.id)


def two_runs_of_an_event() -> None:
    run = make_success()
    twin = make_success(trigger_id=run.trigger_id, trigger="other")
    Run.objects.filter(pk=twin.pk).update(event_ids=run.event_ids)
    ProcessedEvent.objects.filter(run_id=twin.pk).update(event_id=run.event_ids[0])


def an_attempt_that_is_missing() -> None:
    run = make_run(status="failed", attempt=3, epoch=3, policy=RETRIES)
    make_attempt(run, 1)
    make_attempt(run, 3, at=5)


def an_attempt_too_many() -> None:
    run = make_run(status="failed", attempt=3, epoch=3, policy={"retries": 1})
    for number in (1, 2, 3):
        make_attempt(run, number, at=number * 5)


def claims_that_were_never_counted() -> None:
    run = make_run(status="failed", attempt=1, epoch=2, policy=RETRIES)
    make_attempt(run, 1)
    make_attempt(run, 1, epoch=2, at=5)


def two_claims_at_once() -> None:
    run = make_run(status="failed", attempt=2, epoch=2, policy=RETRIES)
    make_attempt(run, 1, seconds=10)
    make_attempt(run, 2, at=5)


def two_runs_of_a_key_at_once() -> None:
    for seq in (1, 2):
        make_success(key="k", seq=seq, at=seq * 0.5)


def runs_of_a_key_in_the_wrong_order() -> None:
    make_success(key="k", seq=2, at=0)
    make_success(key="k", seq=1, at=5)


def a_run_that_waits_for_nobody() -> None:
    make_run(key="k", ready_at=None)


def a_success_that_is_no_attempts() -> None:
    run = make_success()
    Attempt.objects.filter(run=run).update(outcome="failed")


def an_event_nobody_decided_on() -> None:
    make_trigger()
    event = make_event()
    Event.objects.filter(pk=event.pk).update(dispatched_at=datetime.now(UTC) + timedelta(seconds=5))


def a_collected_event_that_no_window_has() -> None:
    trigger = make_trigger(types=[])
    event = make_event()
    Decision.objects.create(event=event, trigger=trigger, replay_id=NIL, outcome="collected")


def an_event_emitted_by_a_failure() -> None:
    run = make_run(status="failed", policy=RETRIES)
    make_event(source_id=builtin_source("run"), cause_run_id=run.id)


# Durable runs


def make_durable(status: str = "waiting", *, steps: int = 1, **fields: Any) -> Run:
    """A run of a dispatched event, with a journal."""
    event = dispatched(make_event(data={}))
    if status == "uncertain":
        fields.setdefault("status_reason", "nobody knows")
    run = make_run(status=status, event_id=event.id, epoch=1, policy=RETRIES, **fields)
    for number in range(steps):
        make_step(run, f"step-{number}")
    return run


def dispatched(event: Event) -> Event:
    Event.objects.filter(pk=event.pk).update(dispatched_at=datetime.now(UTC))
    return event


def make_taken(run: Run, event: Event, **fields: Any) -> Wait:
    """A wait of the run that took the event."""
    dispatched(event)
    return make_wait(
        run, "event", status="done", event_id=event.id, **{"event_type": event.type, "match": {}, **fields}
    )


def two_entries_of_one_place() -> None:
    run = make_durable("queued", steps=0)
    for key in "ab":
        make_step(run, key, position=3)


def an_entry_of_a_claim_that_never_was() -> None:
    make_step(make_durable("queued"), epoch=2)


def a_success_with_a_step_of_unknown_outcome() -> None:
    make_step(make_success(), status="started")


def a_call_that_was_repeated() -> None:
    make_step(make_durable("queued"), effect="at_most_once", attempts=2)


def a_request_that_was_repeated() -> None:
    make_step(make_durable("queued"), effect="at_most_once", kind="model", attempts=2)


def an_uncertain_run_that_says_nothing() -> None:
    make_durable("uncertain", status_reason="")


def a_run_that_waits_for_nothing() -> None:
    make_durable("waiting")


def a_finished_run_that_waits_on() -> None:
    make_wait(make_durable("cancelled"))


def a_wait_that_nothing_ended() -> None:
    make_wait(make_durable("queued"), "event", status="done", event_type="invoice.paid", match={})


def a_sleep_that_was_cut_short() -> None:
    make_wait(make_durable("queued"), "time", status="done", due_at=datetime.now(UTC) + timedelta(hours=1))


def a_wait_that_took_an_event_of_another_type() -> None:
    make_taken(make_durable("queued"), make_event(type="invoice.sent"), event_type="invoice.paid")


def a_wait_that_took_an_event_about_somebody_else() -> None:
    event = make_event(type="invoice.paid", data={"customer": {"id": 7}})
    make_taken(make_durable("queued"), event, match={"customer.id": 8})


def an_event_that_was_taken_twice() -> None:
    run, event = make_durable("queued"), make_event(type="invoice.paid")
    for _ in range(2):
        make_taken(run, event)


def a_signal_that_reached_another_run() -> None:
    run, other = make_durable("queued"), make_durable("queued")
    make_taken(run, make_event(type="run.signal", subject=str(other.id)))


def an_approval_that_nobody_decided() -> None:
    make_approval(make_durable("queued"), decision="", decided_by="", decided_at=None, decided_digest="")


def an_approval_that_was_decided_too_late() -> None:
    run = make_durable("queued")
    make_approval(run, status="expired", decision="deny", decided_by="admin:bob", decided_at=datetime.now(UTC))


def a_wait_for_an_approval_that_is_not_there() -> None:
    make_wait(make_durable("waiting"), "approval")


def an_approval_of_something_else() -> None:
    make_approval(make_durable("queued"), arguments={"amount": 5}, decided_arguments={"amount": 500})


def an_edit_that_was_changed_afterwards() -> None:
    decided = digest_of("Send it?", {"amount": 4})
    make_approval(
        make_durable("queued"), decision="edit", arguments={"amount": 5}, decided_arguments={"amount": 500},
        decided_digest=decided,
    )  # fmt: skip


def an_event_that_was_pruned_from_under_a_run() -> None:
    event = make_event(type="invoice.paid")
    make_taken(make_durable("queued"), event)
    Event.objects.filter(pk=event.pk).update(data=None, body=None, headers=None, payload_removed_at=datetime.now(UTC))


def a_child_that_was_pruned_from_under_its_parent() -> None:
    make_wait(make_durable("queued"), "children", status="done", children=[uuid7()])


def a_fork_of_a_run_that_is_gone() -> None:
    origin = make_durable("failed", steps=0)
    Run.objects.filter(pk=make_fork(origin, status="queued").pk).update(forked_from_id=uuid7())


def a_child_of_what_was_rolled_back() -> None:
    make_child(make_durable("queued", steps=0), status="queued")


def a_forked_run_that_lives() -> None:
    make_fork(make_durable("queued"), status="queued")


def a_fork_under_its_origins_replay() -> None:
    make_fork(make_durable("failed"), status="queued", replay_id=NIL)


def an_absence_without_an_event() -> None:
    source = Source.objects.create(slug="orders", kind="absence")
    SwitchTimer.objects.create(source=source, key="", state="open", opened_at=NOON, opened_id=uuid7())


# What a durable run is left with when there is nothing left to do


def a_wait_that_is_overdue() -> None:
    make_wait(make_durable(), due_at=datetime.now(UTC) - timedelta(minutes=1))


def a_wait_before_which_nothing_was_looked_for() -> None:
    make_wait(make_durable(), "event", event_type="invoice.paid", match={})


def a_wait_for_an_event_that_came() -> None:
    run = make_durable()
    dispatched(make_event(type="invoice.paid", data={"customer": {"id": 7}}))
    make_wait(run, "event", event_type="invoice.paid", match={"customer.id": 7}, looked_at=datetime.now(UTC))


def a_parent_that_was_not_woken() -> None:
    parent = make_durable()
    child = make_child(parent, status="failed")
    make_wait(parent, "children", children=[child.id], looked_at=datetime.now(UTC))


def a_child_that_was_left_behind() -> None:
    parent = make_durable("cancelled")
    make_wait(make_child(parent, status="waiting"), due_at=datetime.now(UTC) + timedelta(hours=1))


BROKEN: dict[Callable[[], None], set[str]] = {
    a_success_without_its_ledger: {"a success is in the ledger, for each of its events"},
    a_failure_in_the_ledger: {"the ledger names only successes"},
    two_runs_of_an_event: {"an event has one run per trigger"},
    an_attempt_that_is_missing: {"every claim ended in one attempt, and counts as one"},
    an_attempt_too_many: {"a run's attempts are counted right"},
    claims_that_were_never_counted: {"every claim ended in one attempt, and counts as one"},
    two_claims_at_once: {"a run has one claim at a time"},
    two_runs_of_a_key_at_once: {"a key has no more runs at once than its limit, and never had"},
    runs_of_a_key_in_the_wrong_order: {"runs of a key start in the order they were dispatched"},
    a_run_that_waits_for_nobody: {"no run waits for a key that is free"},
    a_success_that_is_no_attempts: {"a success is one attempt's, the last"},
    an_event_nobody_decided_on: {"every event is explained"},
    a_collected_event_that_no_window_has: {"each event that joined a run is one of its events"},
    an_event_emitted_by_a_failure: {"an emitted event comes from a run that succeeded, or from a step of one"},
    two_entries_of_one_place: {"an entry of a journal has a place of its own, and a claim that wrote it"},
    an_entry_of_a_claim_that_never_was: {"an entry of a journal has a place of its own, and a claim that wrote it"},
    a_success_with_a_step_of_unknown_outcome: {"a success has no step whose outcome is unknown"},
    a_call_that_was_repeated: {"a step of at most one attempt was tried once"},
    a_request_that_was_repeated: {"a step of at most one attempt was tried once"},
    an_uncertain_run_that_says_nothing: {"an uncertain run has a reason"},
    a_run_that_waits_for_nothing: {"a waiting run waits for one thing, and no other run for anything"},
    a_finished_run_that_waits_on: {"a waiting run waits for one thing, and no other run for anything"},
    a_wait_that_nothing_ended: {"the event that a run waited for has come"},
    a_sleep_that_was_cut_short: {"the event that a run waited for has come"},
    a_wait_that_took_an_event_of_another_type: {"the event that a run waited for has come"},
    a_wait_that_took_an_event_about_somebody_else: {"the event that a run waited for has come"},
    an_event_that_was_taken_twice: {"no two waits of a run take the same event"},
    a_signal_that_reached_another_run: {"a signal reaches the run it was meant for"},
    an_approval_that_nobody_decided: {"an approval is decided exactly where a run went on by it"},
    an_approval_that_was_decided_too_late: {"an approval is decided exactly where a run went on by it"},
    a_wait_for_an_approval_that_is_not_there: {"an approval is decided exactly where a run went on by it"},
    an_approval_of_something_else: {"a decision matches its question"},
    an_edit_that_was_changed_afterwards: {"a decision matches its question"},
    an_event_that_was_pruned_from_under_a_run: {"the events, children and origin of a live run are kept"},
    a_child_that_was_pruned_from_under_its_parent: {"the events, children and origin of a live run are kept"},
    a_fork_of_a_run_that_is_gone: {"the events, children and origin of a live run are kept"},
    a_child_of_what_was_rolled_back: {"a child comes of what its parent has committed"},
    a_forked_run_that_lives: {"a run that was forked stays closed"},
    an_absence_without_an_event: {"each absence has an event of its beginning, also while it lasts"},
    a_fork_under_its_origins_replay: {"a fork is of the same events, under a replay of its own"},
}
UNDONE: dict[Callable[[], None], str] = {
    a_wait_that_is_overdue: "drained: no wait is overdue, and the dispatcher has looked for events before it",
    a_wait_before_which_nothing_was_looked_for: "drained: no wait is overdue, and the dispatcher has looked for events before it",
    a_wait_for_an_event_that_came: "drained: no run waits for an event that has come",
    a_parent_that_was_not_woken: "drained: no run waits for children that have all finished",
    a_child_that_was_left_behind: "drained: no child outlives a parent that was cancelled, unless a fork of that lives",
}


@pytest.mark.parametrize("made", BROKEN, ids=lambda made: made.__name__)
def test_only_the_violated_invariant_is_named(made: Callable[[], None]) -> None:
    made()

    assert set(violated()) == BROKEN[made]


@pytest.mark.parametrize("made", UNDONE, ids=lambda made: made.__name__)
def test_leftovers_of_a_durable_run_are_named_when_drained(made: Callable[[], None]) -> None:
    made()

    assert violated() == []
    assert violated(drained=True) == [UNDONE[made]]


def test_a_durable_run_that_is_sound_breaks_no_promise() -> None:
    run = make_durable()
    make_taken(run, make_event(type="invoice.paid", data={"customer": {"id": 7}}), match={"customer.id": 7})
    make_taken(run, make_event(type="run.signal", subject=str(run.id), data={"name": "go"}))
    make_approval(run, arguments={"amount": 5})
    make_approval(run, arguments={"amount": 5}, decision="deny", decided_digest="", decided_arguments=None)
    make_approval(
        run, arguments={"amount": 5}, decision="edit", decided_arguments=4, decided_digest=digest_of("Send it?", 4)
    )
    make_approval(run, status="expired")
    make_event(type="invoice.paid", data={"customer": {"id": 8}}, source_id=builtin_source("run"), cause_run_id=run.id)
    make_wait(run, "event", event_type="invoice.paid", match={"customer.id": 7}, looked_at=datetime.now(UTC))
    child = make_child(run, status="waiting")
    make_wait(child, due_at=datetime.now(UTC) + timedelta(hours=1))
    Event.objects.update(dispatched_at=datetime.now(UTC))

    report = verify(drained=True)

    assert report.violated == []
    assert (report.counts["steps"], report.counts["children"]) == ({"transactional": 1}, 1)
    assert report.counts["waits"] == {"event": 3, "approval": 4, "time": 1}


def test_a_request_that_was_tried_before_its_answer_was_paid_and_lost_breaks_no_promise() -> None:
    """From then on only a person has it made once more."""
    make_step(make_durable("failed"), status="failed", effect="at_most_once", kind="model", attempts=2)

    assert violated() == []


def test_progress_restarts_the_count_of_attempts() -> None:
    run = make_run(status="failed", attempt=1, epoch=3, policy=RETRIES)
    make_step(run)
    for epoch, (number, outcome) in enumerate([(1, "lost"), (2, "waiting"), (1, "failed")], start=1):
        make_attempt(run, number, epoch=epoch, outcome=outcome, at=epoch * 5)

    assert violated() == []


def test_a_decision_whose_question_retention_took_is_not_judged() -> None:
    run = make_success()
    make_approval(run, arguments={"amount": 5})
    remove_payloads([run.id])

    assert violated() == []


def test_an_empty_database_breaks_no_promise() -> None:
    report = verify(drained=True)

    assert report.holds
    assert len(report.findings) > 15


def test_a_dispatched_event_is_explained_by_its_run_or_its_decision() -> None:
    make_trigger()
    make_trigger("paused", paused_at=datetime.now(UTC), paused_reason="for now")
    make_trigger("picky", filter="event.data.n > 1")
    make_event(data={"n": 1})

    dispatch(Rules())

    report = verify()
    assert report.holds
    assert report.counts["runs"] == {"queued": 1}
    assert report.counts["decisions"] == {"held": 1}


def test_a_key_limit_above_one_is_counted() -> None:
    for seq in (1, 2):
        make_success(key="k", seq=seq, at=seq * 0.1, key_limit=2)
    assert violated() == []

    make_success(key="k", seq=3, at=0.3, key_limit=2)

    assert violated() == ["a key has no more runs at once than its limit, and never had"]


def test_a_requeued_run_may_count_from_one_again() -> None:
    run = make_run(status="failed", attempt=2, epoch=2, policy={"retries": 1})
    make_attempt(run, 1)
    make_attempt(run, 2, at=5)
    requeue(run.id, by="test")
    Run.objects.filter(pk=run.pk).update(status="cancelled", ready_at=None, finished_at=NOON, attempt=1, epoch=4)
    make_attempt(run, 1, epoch=4, outcome="cancelled", at=10)

    assert violated() == []


def test_open_work_is_a_violation_only_when_drained() -> None:
    make_run()
    OutboxMessage.objects.create(topic="event", payload={})
    make_event()

    assert violated() == []
    assert violated(drained=True) == [
        "drained: no event waits to be dispatched",
        "drained: no run is unfinished",
        "drained: the outbox is empty",
    ]


def test_an_accepted_event_that_is_not_there_is_lost() -> None:
    event = make_event()

    assert violated(accepted=[event.id]) == []
    assert violated(accepted=[event.id, uuid7()]) == ["no accepted event is lost"]


def test_verify_with_since_checks_only_later_events() -> None:
    a_success_without_its_ledger()

    assert violated(since=datetime.now(UTC) + timedelta(minutes=1)) == []
    assert violated(since=datetime.now(UTC) - timedelta(minutes=1)) != []


def test_invariants_of_ones_own_are_checked_in_the_same_way() -> None:
    make_run(agent="invoice")
    own = invariants_in("--- no more than 100 % of invoices\nSELECT agent FROM runs_run WHERE agent LIKE 'inv%';\n")

    assert violated(own=own) == ["no more than 100 % of invoices"]


def test_a_file_without_an_invariant_is_refused() -> None:
    with pytest.raises(ValueError, match="no invariant"):
        invariants_in("SELECT 1")


@pytest.mark.django_db(transaction=True)
def test_nothing_can_be_written_by_an_invariant() -> None:
    own = invariants_in("--- harmless\nDELETE FROM runs_run RETURNING id;")

    with pytest.raises(Exception, match="read-only transaction"):
        verify(own=own)


def test_the_command_exits_with_1_and_names_the_violation(tmp_path: Path) -> None:
    run = make_success(ledger=False)
    history = tmp_path / "history.jsonl"
    history.write_text(json.dumps({"event": str(uuid7())}) + '\n{"error": "TimeoutError"}\n')
    out = StringIO()

    with pytest.raises(SystemExit) as stopped:
        call_command("verify", "--accepted", str(history), "--drained", stdout=out)

    assert stopped.value.code == 1
    assert "VIOLATED  a success is in the ledger" in out.getvalue()
    assert f"run={run.id}" in out.getvalue()
    assert "VIOLATED  no accepted event is lost" in out.getvalue()


def test_the_command_is_content_with_a_sound_database() -> None:
    make_success()
    out = StringIO()

    call_command("verify", "--json", "--all", stdout=out)

    report = json.loads(out.getvalue())
    assert report["holds"] is True
    assert report["counts"]["runs"] == {"succeeded": 1}
