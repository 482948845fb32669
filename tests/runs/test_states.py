"""The table of transitions, the database's copy of it, and a machine that tries everything against a key."""

from datetime import timedelta
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
from agents.kernel.ids import run_id
from runs import keys
from runs.actions.cancel import cancel
from runs.actions.requeue import requeue
from runs.attempt.failure import outcome_of
from runs.chores import timers
from runs.claim import Claim, claim_next
from runs.db.sql import database_now
from runs.enqueue import NewRun
from runs.exceptions import IllegalState, RunLost
from runs.models import NIL, Attempt, OutboxMessage, ProcessedEvent, Run, Worker
from runs.models.policy import Policy
from runs.processes.rescue import lost
from runs.states import FINISHED, LIVE, TRANSITIONS, RunStatus
from runs.transitions.leave import leave
from runs.transitions.outcome import Outcome
from tests.support.examples import some_of
from tests.support.runs import make_run
from triggers.dispatch.admission import admit
from triggers.dispatch.batch import open_ledger
from triggers.dispatch.decisions import write_decisions
from triggers.matching.flow_control import Intake, Rate
from triggers.matching.index import Rule
from triggers.matching.matches import Match

pytestmark = pytest.mark.sampled

OWNED: dict[str, Any] = {"claimed_at": timezone.now(), "deadline_at": timezone.now(), "pid": 1}


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
        assert "run_legal_transition" in str(refused)

    assert changed is (new in TRANSITIONS[old])


def test_every_state_is_in_the_table_and_only_success_is_final() -> None:
    assert set(TRANSITIONS) == set(RunStatus)
    assert [status for status, onward in TRANSITIONS.items() if not onward] == [RunStatus.SUCCEEDED]


@pytest.mark.django_db
def test_an_epoch_never_falls() -> None:
    run = make_run(epoch=3)

    with pytest.raises(IntegrityError, match="run_epoch_rises"):
        Run.objects.filter(pk=run.pk).update(epoch=2)


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("rule", "status", "fields"),
    [
        ("run_status_known|run_legal_transition", "asleep", {}),
        ("run_slot_needs_key", "queued", {"slot": 1}),
        ("run_ready_is_queued_and_admitted", "waiting", {"ready_at": timezone.now()}),
        ("run_ready_is_queued_and_admitted", "queued", {"key": "k"}),
        ("run_due_is_queued", "waiting", {"due_at": timezone.now()}),
        ("run_due_is_queued", "queued", {"due_at": timezone.now()}),
        *(
            ("run_running_is_owned", "running", OWNED | {"worker_id": uuid4(), gone: None})
            for gone in ("worker_id", *OWNED)
        ),
        ("run_finished_has_time", "waiting", {"finished_at": timezone.now()}),
        ("run_finished_has_time", "succeeded", {"finished_at": None}),
        ("run_finished_holds_no_slot", "failed", {"key": "k", "slot": 1}),
        ("run_counts_from_zero", "queued", {"attempt": -1}),
        ("run_counts_from_zero", "queued", {"key_limit": -1}),
    ],
)
def test_the_database_refuses_a_row_that_contradicts_itself(rule: str, status: str, fields: dict[str, Any]) -> None:
    with pytest.raises(IntegrityError, match=rule), transaction.atomic():
        make_run(status=status, **fields)

    run = make_run(status="running", **OWNED, worker_id=uuid4()) if status != "queued" else make_run()
    finished = {"finished_at": timezone.now()} if status in FINISHED else {}
    with pytest.raises(IntegrityError, match=rule):
        Run.objects.filter(pk=run.pk).update(status=status, **(finished | fields))


@pytest.mark.django_db
def test_taint_stays() -> None:
    run = make_run(is_tainted=True)

    with pytest.raises(IntegrityError, match="run_stays_tainted"):
        Run.objects.filter(pk=run.pk).update(is_tainted=False)


LIMITS = {"a": 1, "b": 1, "c": 2}  # of each key
OVERLAPS = ["skip", "queue", "queue_one", "cancel_previous"]
RATE = Rate.parse("2/h")


class OneKey(RuleBasedStateMachine):
    """Runs of a few keys go through everything that can happen to them, in any order."""

    claims = Bundle("claims")

    def __init__(self) -> None:
        super().__init__()
        self.transaction = transaction.atomic()
        self.transaction.__enter__()
        self.trigger = uuid4()

    def teardown(self) -> None:
        transaction.set_rollback(True)
        self.transaction.__exit__(None, None, None)

    @rule(name=st.sampled_from(list(LIMITS)), overlap=st.sampled_from(OVERLAPS), rate=st.sampled_from([None, RATE]))
    def dispatch(self, name: str, overlap: str, rate: Rate | None) -> None:
        if overlap == "cancel_previous" and LIMITS[name] > 1:
            return
        event, key, limit = uuid7(), f"{self.trigger}:{name}", LIMITS[name]
        found = Rule(
            id=self.trigger, slug="t", agent="a", overlap=overlap, key_limit=limit,
            policy=Policy(timeout=60, retries=1, reports=({"on": "end", "event": True},)), intake=Intake(rate=rate),
        )  # fmt: skip
        match = Match(
            rule=found, event_ids=[event], root_id=event, depth=0, chain=(), replay_id=UUID(NIL), key=key, group=key
        )
        live = keys.states({key: limit})[key].live
        ledger = open_ledger([match], database_now())
        admit([match], ledger)
        ledger.refused, refused = [], ledger.refused  # decisions are the rows of real events
        write_decisions(ledger)
        assert [refusal.outcome for refusal in refused] in ([], ["joined"] if overlap == "queue_one" else ["overlap"])
        assert (overlap == "skip" and live >= limit) == (bool(refused) and overlap == "skip")

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
        for run in Run.objects.filter(due_at__isnull=False):  # not all at once: they keep their order
            Run.objects.filter(pk=run.pk).update(due_at=run.due_at - timedelta(days=2))  # type: ignore[operator]
        timers.wake_due(100)

    def some_run(self, which: int) -> Run | None:
        runs = list(Run.objects.order_by("created_at", "id"))
        return runs[which % len(runs)] if runs else None

    @invariant()
    def no_key_is_overbooked_or_forgotten(self) -> None:
        assert keys.stalled("", 100) == ([], "")
        for key in {run.key for run in Run.objects.all() if run.key}:
            limit, live = LIMITS[key.rpartition(":")[2]], Run.objects.filter(key=key, status__in=LIVE)
            slots = list(live.filter(slot__isnull=False).values_list("slot", flat=True))
            assert len(set(slots)) == len(slots) <= limit
            assert live.filter(status=RunStatus.RUNNING).count() <= len(slots)
            put_off = live.filter(due_at__isnull=False, slot=None).count()
            assert len(slots) >= min(limit, live.count() - put_off) or (limit == 1 and put_off)

    @invariant()
    def the_ledger_is_what_succeeded(self) -> None:
        succeeded = Run.objects.filter(status=RunStatus.SUCCEEDED).values_list("event_ids", flat=True)
        assert ProcessedEvent.objects.count() == sum(len(events) for events in succeeded)

    @invariant()
    def every_end_is_told(self) -> None:
        ended = OutboxMessage.objects.filter(topic="run.finished").count()
        assert ended >= Run.objects.filter(status__in=FINISHED).count()
        assert OutboxMessage.objects.filter(topic="run.report").count() == ended


@pytest.mark.django_db
def test_no_sequence_of_actions_breaks_the_limit_of_a_key() -> None:
    run_state_machine_as_test(
        OneKey,
        settings=settings(max_examples=some_of(40), stateful_step_count=25, suppress_health_check=list(HealthCheck)),
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
