"""The table of transitions, the database's copy of it, and a machine that tries everything against a key."""

from itertools import product
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import IntegrityError, connection, transaction
from django.utils import timezone
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule, run_state_machine_as_test
from uuid_utils.compat import uuid7

from agents import Permanent, Retry
from runs import keys, timers
from runs.cancel import cancel
from runs.claim import Claim, claim_next
from runs.enqueue import NewRun
from runs.exceptions import IllegalState, RunLost
from runs.ids import run_id
from runs.models import NIL, Attempt, OutboxMessage, ProcessedEvent, Run, Worker
from runs.outcome import Outcome, leave
from runs.policy import Policy
from runs.requeue import requeue
from runs.rescue import lost
from runs.retry import outcome_of
from runs.states import FINISHED, LIVE, TRANSITIONS, RunStatus, may_go
from tests.runs.factories import make_run
from triggers.admission import Match, admit
from triggers.dispatch import open_ledger, settle
from triggers.matching import Rule

OWNED = {"claimed_at": timezone.now(), "deadline_at": timezone.now(), "pid": 1}


def fields_of(status: RunStatus) -> dict[str, Any]:
    """What a row needs in this state besides the state."""
    finished = {"finished_at": timezone.now() if status in FINISHED else None}
    ready = {"ready_at": timezone.now() if status == RunStatus.QUEUED else None}
    return {**finished, **ready, **(OWNED | {"worker_id": uuid4()} if status == RunStatus.RUNNING else {})}


@pytest.mark.django_db
@pytest.mark.parametrize(("old", "new"), [pair for pair in product(RunStatus, RunStatus) if pair[0] != pair[1]])
def test_the_database_knows_the_same_transitions(old: RunStatus, new: RunStatus) -> None:
    run = make_run(status=old, **fields_of(old))

    try:
        with transaction.atomic():
            Run.objects.filter(pk=run.pk).update(status=new, **fields_of(new))
        changed = True
    except IntegrityError as refused:
        changed = False
        assert "not a legal transition" in str(refused)

    assert changed is may_go(old, new)


def test_every_state_is_in_the_table_and_only_success_is_final() -> None:
    assert set(TRANSITIONS) == set(RunStatus)
    assert [status for status, onward in TRANSITIONS.items() if not onward] == [RunStatus.SUCCEEDED]


@pytest.mark.django_db
def test_an_epoch_never_falls() -> None:
    run = make_run(epoch=3)

    with pytest.raises(IntegrityError, match="epoch may not fall"):
        Run.objects.filter(pk=run.pk).update(epoch=2)


class OneKey(RuleBasedStateMachine):
    """Runs of two keys go through everything that can happen to them, in any order."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.transaction = transaction.atomic()
        self.transaction.__enter__()
        self.trigger = uuid4()
        self.dispatched: dict[str, list[UUID]] = {"a": [], "b": []}

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.transaction.__exit__(None, None, None)

    @rule(name=st.sampled_from("ab"), overlap=st.sampled_from(["skip", "queue"]))
    def dispatch(self, name: str, overlap: str) -> None:
        event = uuid7()
        key = f"{self.trigger}:{name}"
        found = Rule(id=self.trigger, slug="t", agent="a", overlap=overlap, policy=Policy(timeout=60, retries=1))
        match = Match(rule=found, event_ids=[event], root_id=event, depth=0, replay_id=UUID(NIL), key=key)
        live = keys.states({key: 1})[key].live
        ledger = open_ledger([match])
        admit([match], ledger)
        settle(ledger)
        assert bool(ledger.refused) == bool(overlap == "skip" and live)

    @rule(target=claims)
    def claim(self) -> Any:
        worker = Worker.objects.create(id=uuid4(), kind="worker", host="h", pid=1, version="1", concurrency=1)
        claimed = claim_next(worker.id, "default", {"a": "1"})
        with connection.cursor() as cursor:  # all play on one session here, which a rescue must not end
            cursor.execute("SET application_name = 'test'")
        return multiple() if claimed is None else claimed

    @rule(claim=claims)
    def succeed(self, claim: Claim) -> None:
        self.leave(claim, Outcome(status=RunStatus.SUCCEEDED, attempt=Attempt.Outcome.SUCCEEDED))

    @rule(claim=claims, error=st.sampled_from([ValueError("x"), Permanent("x"), Retry(after=0)]))
    def fail(self, claim: Claim, error: Exception) -> None:
        self.leave(claim, outcome_of(error, claim))

    def leave(self, claim: Claim, outcome: Outcome) -> None:
        run = Run.objects.get(pk=claim.run_id)
        owned = run.epoch == claim.epoch and run.status == RunStatus.RUNNING
        if run.epoch == claim.epoch and not owned:
            return  # an owner records one outcome
        try:
            with transaction.atomic():
                leave(claim.ticket, outcome)
        except RunLost:
            assert not owned
        else:
            assert owned

    @rule(claim=claims)
    def lose(self, claim: Claim) -> None:
        run = Run.objects.get(pk=claim.run_id)
        if run.status == RunStatus.RUNNING:
            assert lost(run, "it was lost")

    @rule(which=st.integers(0, 20))
    def cancel(self, which: int) -> None:
        run = self.some_run(which)
        if run is None:
            return
        try:
            cancel(run.id, by="test")
        except IllegalState as refused:
            assert run.status in FINISHED
            assert refused.status == run.status

    @rule(which=st.integers(0, 20))
    def requeue(self, which: int) -> None:
        run = self.some_run(which)
        if run is None:
            return
        try:
            requeue(run.id, by="test")
        except IllegalState:
            assert run.status not in (RunStatus.FAILED, RunStatus.CANCELLED)

    @rule()
    def time_passes(self) -> None:
        Run.objects.filter(due_at__isnull=False).update(due_at=timezone.now())
        timers.wake_due(100)

    def some_run(self, which: int) -> Run | None:
        runs = list(Run.objects.order_by("created_at", "id"))
        return runs[which % len(runs)] if runs else None

    @invariant()
    def no_key_is_overbooked_or_forgotten(self) -> None:
        for key in {run.key for run in Run.objects.all()}:
            live = Run.objects.filter(key=key, status__in=LIVE)
            assert live.filter(status=RunStatus.RUNNING).count() <= 1
            assert live.filter(slot=1).count() == (1 if live else 0)

    @invariant()
    def the_ledger_is_what_succeeded(self) -> None:
        assert ProcessedEvent.objects.count() == Run.objects.filter(status=RunStatus.SUCCEEDED).count()

    @invariant()
    def every_end_is_told(self) -> None:
        ended = OutboxMessage.objects.filter(topic="run.finished").count()
        assert ended >= Run.objects.filter(status__in=FINISHED).count()


@pytest.mark.django_db
def test_no_order_of_things_breaks_a_key() -> None:
    run_state_machine_as_test(
        OneKey,
        settings=settings(
            max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
    assert connection.in_atomic_block


def test_a_run_id_is_deterministic_and_keeps_the_events_time() -> None:
    trigger, event = uuid4(), uuid7()

    assert run_id(trigger, event, UUID(NIL)) == run_id(trigger, event, UUID(NIL))
    assert run_id(trigger, event, UUID(NIL)) != run_id(trigger, event, uuid4())
    assert run_id(trigger, event, UUID(NIL)).bytes[:6] == event.bytes[:6]
    assert run_id(trigger, event, UUID(NIL)).version == 8


def test_a_new_run_with_a_key_is_ready_only_with_a_slot() -> None:
    event = uuid7()
    run = NewRun(
        id=event, agent="a", trigger="t", trigger_id=uuid4(), event_ids=[event], policy=Policy(), root_id=event,
        replay_id=UUID(NIL), key="k",
    )  # fmt: skip

    assert not run.is_ready
