"""Fork: a new run that starts from a copy of an earlier run's journal, cut before a given step; optionally with new input.

An unfinished origin is cancelled, so that two runs do not do the same work: a waiting run in the same transaction; a running one
is stopped first, because its journal still grows. Only journal rows are copied: children still belong to the first run, and the
fork has no parent.

A decision counts once. If the fork repeats work that was done after an approval, or an earlier fork of the same run may
have done it, the fork needs that approval again.
"""

from typing import Any
from uuid import UUID, uuid4

from django.db import transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from uuid_utils.compat import uuid7

from agents.guards.atomic import not_in_atomic_body
from agents.journal.canonical import match_of
from agents.kernel.ids import run_id as id_of
from agents.kernel.reserved_types import SIGNAL
from runs import keys
from runs.actions.cancel import cancel
from runs.actions.watch import watch
from runs.db.sql import execute, fetch
from runs.enqueue import NewRun, enqueue
from runs.exceptions import IllegalState
from runs.failpoints import failpoint
from runs.models import NIL, Approval, Notification, Run, Step, Wait, audit
from runs.models.policy import Policy
from runs.states import FINISHED, RunStatus
from runs.transitions.lock import lock_run
from runs.transitions.stop import stop

STOPS_WITHIN = 10.0  # seconds; more than two renewals of the lease, by which its worker learns of the cancellation

# Unfinished entries cannot be copied: an intent without an outcome, an open or closed wait.
UNFINISHED = """
SELECT key FROM (
  SELECT key, position FROM runs_step WHERE run_id = %(run)s::uuid AND position < %(position)s::int AND status = 'started'
  UNION ALL
  SELECT key, position FROM runs_wait WHERE run_id = %(run)s::uuid AND position < %(position)s::int AND status IN ('open', 'closed')
) entry ORDER BY position LIMIT 1
"""
POSITION = """
SELECT position FROM runs_step WHERE run_id = %(run)s::uuid AND key = %(key)s::text
UNION ALL
SELECT position FROM runs_wait WHERE run_id = %(run)s::uuid AND key = %(key)s::text
"""
COPY_STEPS = """
INSERT INTO runs_step (run_id, key, position, is_keyed, effect, status, epoch, attempts, arguments, output, error, error_kind,
                       is_permanent, kind, usage, started_at, ended_at)
SELECT %(fork)s::uuid, key, position, is_keyed, effect, status, 0, attempts, arguments, output, error, error_kind,
       is_permanent, kind, usage, started_at, ended_at
FROM runs_step WHERE run_id = %(run)s::uuid AND position < %(position)s::int
"""
COPY_WAITS = """
INSERT INTO runs_wait (run_id, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash,
                       event_id, children, looked_at, created_at, ended_at)
SELECT %(fork)s::uuid, key, position, is_keyed, kind, status, due_at, event_type, match, match_shape, match_hash,
       event_id, children, looked_at, created_at, ended_at
FROM runs_wait WHERE run_id = %(run)s::uuid AND position < %(position)s::int
"""


@not_in_atomic_body
def fork(run_id: UUID, *, by: str, step: str = "", input: Any = None, has_input: bool = False) -> Run:
    """Create a run of the same events, queued behind its key, with the journal of the given run before the entry `step` (""
    copies nothing). With `has_input` its input is `input`; null means the data of its event.

    Raises Run.DoesNotExist, ValueError if there is no such entry, and IllegalState if the payload of the run was removed, the
    run has not stopped, or an earlier entry is not finished.
    """
    _stop_running(run_id, step, by)
    with transaction.atomic():
        origin = lock_run(run_id)
        position = _position(origin, step)
        if origin.status == RunStatus.RUNNING:
            why = (
                "is being stopped: fork it once it has stopped"
                if origin.cancel_requested_at
                else "has just started: try again"
            )
            raise IllegalState(f"run {run_id} is running, and {why}", origin.status)
        _require_finished(origin, position)
        if origin.status not in FINISHED:
            stop(origin, f"{by}, who forked it")
        new = _fork_of(origin, input, has_input)
        enqueue([new])
        Run.objects.filter(pk=new.id).update(fired=origin.fired)  # the gate of the run has answered
        _copy_journal(origin, new.id, position)
        if origin.key:
            keys.promote([origin.key])
        audit.record(by, "fork", origin, fork=str(new.id), new_input=has_input, **audit.entry(step, position))
        failpoint("before_fork_commit")
    return Run.objects.get(pk=new.id)


def _stop_running(run_id: UUID, step: str, by: str) -> None:
    """Stop a running run that can be forked, and wait until it has stopped."""
    run = Run.objects.get(pk=run_id)
    _position(run, step)
    if run.status != RunStatus.RUNNING:
        return
    cancel(run_id, by=f"{by}, to fork it")
    watch(run_id, STOPS_WITHIN)
    run.refresh_from_db(fields=["status"])
    if run.status == RunStatus.SUCCEEDED:
        raise IllegalState(f"run {run_id} succeeded before it could be stopped", run.status)


def _position(run: Run, step: str) -> int:
    """The position of the first entry that is not copied."""
    if run.payload_removed_at:
        raise IllegalState(f"run {run.pk} cannot be forked: retention or erasure removed its payload", run.status)
    if not step:
        return 0
    found = fetch(POSITION, {"run": run.pk, "key": step})
    if not found:
        raise ValueError(f"the journal of run {run.pk} has no entry {step!r}")
    position = int(found[0][0])
    if run.steps.filter(kind=Step.Kind.LLM, output__isnull=True, position__lt=position).exists():
        raise IllegalState(
            f"run {run.pk} cannot be forked there: its agent keeps no content, so its conversation with a model is gone; "
            "fork it from its beginning",
            run.status,
        )
    return position


def _require_finished(origin: Run, position: int) -> None:
    for (key,) in fetch(UNFINISHED, {"run": origin.pk, "position": position}):
        raise IllegalState(
            f"run {origin.pk}: {key!r} comes before that step and is not finished, so it cannot be copied: "
            "fork from it or from an earlier step",
            origin.status,
        )


def _fork_of(origin: Run, input: Any, has_input: bool) -> NewRun:
    replay_id = uuid4()
    first = origin.event_ids[0] if origin.event_ids else origin.parent_id or origin.pk
    return NewRun(
        id=id_of(origin.trigger_id or UUID(NIL), first, replay_id),
        agent=origin.agent,
        trigger=origin.trigger,
        trigger_id=origin.trigger_id,
        event_ids=origin.event_ids,
        policy=Policy.of_run(origin.policy),
        root_id=origin.root_id,
        replay_id=replay_id,
        depth=origin.depth,
        chain=origin.chain,
        input=input if has_input else origin.input,
        has_input=has_input or origin.input is not None,
        key=origin.key,
        key_limit=origin.key_limit,
        forked_from_id=origin.pk,
        is_tainted=origin.is_tainted,
    )


def _copy_journal(origin: Run, fork_id: UUID, position: int) -> None:
    parameters = {"run": origin.pk, "fork": fork_id, "position": position}
    if execute(COPY_STEPS, parameters) + execute(COPY_WAITS, parameters):
        Run.objects.filter(pk=fork_id).update(has_journal=True)
    _readdress_signals(fork_id)
    was_forked = Run.objects.filter(forked_from_id=origin.pk).exclude(pk=fork_id).exists()
    asked_again = _granted(origin, position) if was_forked or _repeats(origin, position) else []
    copies = dict(Wait.objects.filter(run_id=fork_id, kind=Wait.Kind.APPROVAL).values_list("key", "id"))
    approvals = list(Approval.objects.filter(wait__run=origin, wait__position__lt=position).select_related("wait"))
    for approval in approvals:
        approval.pk, approval.wait_id = uuid7(), copies[approval.wait.key]
        if approval.wait.key in asked_again:
            approval.decision = approval.decided_by = approval.decided_digest = approval.reason = ""
            approval.decided_arguments = approval.decided_at = None
    Approval.objects.bulk_create(approvals)
    Notification.objects.bulk_create(
        Notification(
            sender=origin.agent,
            run_id=fork_id,
            text=f"Asks again for approval, in a fork: {approval.question}",
            topic=f"approval:{approval.pk}",
            link=f"approval:{approval.pk}",
        )
        for approval in approvals
        if not approval.decision
    )
    # The replay opens a closed wait again; the person has as much time as before.
    Wait.objects.filter(run_id=fork_id, key__in=asked_again).update(
        status=Wait.Status.CLOSED, due_at=Now() + (F("due_at") - F("created_at")), created_at=Now(), ended_at=Now()
    )


def _readdress_signals(fork_id: UUID) -> None:
    """A wait for a signal names the run: put in the id of the fork, which its replay will ask for."""
    for wait in Wait.objects.filter(run_id=fork_id, event_type=SIGNAL, match__isnull=False):
        wait.match = {**(wait.match or {}), "run": str(fork_id)}
        wait.match_shape, wait.match_hash = match_of(wait.match)
        wait.save(update_fields=["match", "match_shape", "match_hash"])


def _repeats(origin: Run, position: int) -> bool:
    """Will the fork repeat a step that had, or may have had, an effect? An idempotent call that failed may have arrived, and the fork
    makes it under a key of its own."""
    done = Q(status__in=[Step.Status.DONE, Step.Status.STARTED])
    maybe_done = Q(status=Step.Status.FAILED, effect=Step.Effect.IDEMPOTENT) & ~Q(kind=Step.Kind.MODEL)
    repeated = origin.steps.filter(done | maybe_done, position__gte=position)
    return repeated.exclude(effect__in=[Step.Effect.READ, Step.Effect.VALUE]).exists()


def _granted(origin: Run, position: int) -> list[str]:
    granted = [Approval.Decision.APPROVE, Approval.Decision.EDIT]
    return list(
        origin.waits.filter(position__lt=position, approval__decision__in=granted).values_list("key", flat=True)
    )
