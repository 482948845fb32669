from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import F, Func, Q
from django.db.models.functions import Coalesce, Now

from runs.db.column_defaults import next_value
from runs.states import FINISHED, LIVE, RunStatus

from .worker import Worker

NIL = "00000000-0000-0000-0000-000000000000"

# JSON columns. A loop over runs defers them: one value that this version cannot parse (nested too deep, for example) would stop
# the loop for every other run.
UNPARSED = ("input", "policy", "result", "fired")

# The parameters of `runs_is_consistent`.
CHECKED = (
    "status",
    *("ready_at", "due_at", "claimed_at", "deadline_at", "finished_at"),
    *("key", "key_limit", "slot", "worker_id", "pid", "attempt", "epoch"),
)


class RunManager(models.Manager["Run"]):
    def running(self) -> models.QuerySet["Run"]:
        return self.filter(status=RunStatus.RUNNING)

    def live(self) -> models.QuerySet["Run"]:
        return self.filter(status__in=sorted(LIVE))

    def finished(self) -> models.QuerySet["Run"]:
        return self.filter(status__in=sorted(FINISHED))


class Run(models.Model):
    """One durable execution of an agent for one (trigger, event); also its own place in the queue.

    A queued run is *ready* (`ready_at`; may be claimed), *due* later (`due_at`; a backoff), or
    blocked behind its key (neither).
    """

    id = models.UUIDField(primary_key=True, editable=False, help_text="the event's time + hash(trigger, event, replay)")
    seq = models.BigIntegerField(db_default=next_value("runs_run_seq"), editable=False)
    queue = models.TextField(default="default")
    agent = models.TextField()
    version = models.TextField(default="", help_text="code version of the agent at its last claim")
    begun_version = models.TextField(db_default="", help_text="code version of the agent at its first claim")
    trigger = models.TextField(default="", help_text="the trigger's slug")
    trigger_id = models.UUIDField(null=True)
    event_ids = ArrayField(models.UUIDField(), default=list)
    input = models.JSONField(null=True)
    policy = models.JSONField(default=dict, help_text="snapshot of the trigger's policy at dispatch")
    priority = models.SmallIntegerField(default=5, help_text="0 is most urgent")
    turn = models.BigIntegerField(
        null=True, editable=False, help_text="its place among the runs of its priority; null: by `seq`"
    )
    parent_id = models.UUIDField(null=True)
    forked_from_id = models.UUIDField(null=True)
    replay_id = models.UUIDField(default=NIL)
    root_id = models.UUIDField(help_text="the first event of the causal chain")
    depth = models.SmallIntegerField(default=0)
    chain = ArrayField(models.TextField(), db_default=[], help_text="slugs of the triggers whose runs led to this one")
    is_tainted = models.BooleanField(
        db_default=False,
        help_text="the run has seen untrusted data, so its dangerous tools need approval; never reset",
    )

    status = models.TextField(choices=RunStatus, default=RunStatus.QUEUED)
    status_reason = models.TextField(default="")
    ready_at = models.DateTimeField(null=True)
    due_at = models.DateTimeField(null=True)
    claimed_at = models.DateTimeField(null=True)
    deadline_at = models.DateTimeField(null=True)
    attempt = models.PositiveIntegerField(default=0, help_text="claims since the last progress")
    epoch = models.PositiveIntegerField(default=0, help_text="fencing token; rises, never falls")
    # After a failover that lost a claim, an epoch may repeat; the identity of the claim does not.
    claim = models.UUIDField(null=True, editable=False, help_text="identity of the last claim")
    # No foreign key in the database: its check would lock the worker's row at every claim, and delay the renewal of the lease.
    worker = models.ForeignKey(Worker, models.DO_NOTHING, null=True, db_constraint=False, db_index=False)
    pid = models.IntegerField(null=True)

    key = models.TextField(null=True, help_text="<trigger uuid>:<value>; null where overlap is allowed")
    key_limit = models.PositiveSmallIntegerField(default=1)
    slot = models.PositiveSmallIntegerField(null=True, help_text="the place of its key that this run occupies")
    cancel_requested_at = models.DateTimeField(null=True)

    has_journal = models.BooleanField(db_default=False, help_text="a durable execution wrote a step, value or wait")
    fired = models.JSONField(
        null=True, help_text="the answer of its gate: reason, data, state, and the revision of the state it read"
    )
    result = models.JSONField(null=True)
    error = models.TextField(default="")
    payload_removed_at = models.DateTimeField(
        null=True, help_text="when retention or erasure removed input, result and error"
    )
    created_at = models.DateTimeField(db_default=Now())
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)

    objects = RunManager()

    class Meta:
        permissions = [
            ("requeue_run", "Can requeue runs"),
            ("cancel_run", "Can cancel runs"),
            ("fork_run", "Can fork runs"),
            ("signal_run", "Can signal runs"),
            ("resolve_run", "Can resolve uncertain runs"),
        ]
        constraints = [
            models.UniqueConstraint(fields=["key", "slot"], name="run_one_per_slot", condition=Q(slot__isnull=False)),
            models.UniqueConstraint(
                fields=["worker", "pid"], name="run_one_per_child", condition=Q(status=RunStatus.RUNNING)
            ),
            # One function with a name for each rule (`0010_one_check_of_a_run`): each statement of PostgreSQL
            # reads and plans an expression again.
            models.CheckConstraint(
                name="run_is_consistent",
                condition=Func(*map(F, CHECKED), function="runs_is_consistent", output_field=models.BooleanField()),
            ),
        ]
        indexes = [
            # By agent, so that runs for which a worker has no code cost its claims nothing (runs/db/ready_runs.py).
            models.Index(
                "queue",
                "agent",
                "priority",
                Coalesce("turn", "seq"),
                "seq",
                name="run_claimable",
                condition=Q(status=RunStatus.QUEUED, ready_at__isnull=False),
            ),
            # By trigger, for the turn of the next run of a key (keys.PLACED).
            models.Index(
                "queue",
                "priority",
                "trigger",
                Coalesce("turn", "seq"),
                name="run_ready_with_key",
                condition=Q(status=RunStatus.QUEUED, ready_at__isnull=False, key__isnull=False),
            ),
            models.Index(fields=["due_at"], name="run_due", condition=Q(status=RunStatus.QUEUED, due_at__isnull=False)),
            models.Index(
                fields=["key", "seq"], name="run_live_by_key", condition=Q(status__in=sorted(LIVE), key__isnull=False)
            ),
            # Runs without a place, blocked or due later, without the `waiting` runs of the key: keys.BLOCKED, keys.DUE.
            models.Index(
                fields=["key", "seq"],
                name="run_blocked",
                condition=Q(status=RunStatus.QUEUED, slot=None, due_at=None, ready_at=None, key__isnull=False),
            ),
            models.Index(
                fields=["key", "seq"],
                name="run_due_by_key",
                condition=Q(status=RunStatus.QUEUED, slot=None, due_at__isnull=False, key__isnull=False),
            ),
            models.Index(fields=["trigger", "id"], name="run_by_trigger"),
            models.Index(fields=["id"], name="run_failed", condition=Q(status=RunStatus.FAILED)),
            models.Index(fields=["id"], name="run_waiting", condition=Q(status=RunStatus.WAITING)),
            models.Index(fields=["id"], name="run_uncertain", condition=Q(status=RunStatus.UNCERTAIN)),
            models.Index(fields=["parent_id", "id"], name="run_by_parent", condition=Q(parent_id__isnull=False)),
            models.Index(
                fields=["parent_id"],
                name="run_live_by_parent",
                condition=Q(parent_id__isnull=False, status__in=sorted(LIVE)),
            ),
            models.Index(fields=["forked_from_id"], name="run_by_fork", condition=Q(forked_from_id__isnull=False)),
            models.Index(fields=["replay_id"], name="run_by_replay", condition=~Q(replay_id=NIL)),
        ]

    def __str__(self) -> str:
        return f"{self.agent} {self.id}"


class Attempt(models.Model):
    """The outcome of a claim. A view: the row of an atomic run that succeeded says all of its last attempt, of others there is an
    AttemptRow."""

    class Outcome(models.TextChoices):
        SUCCEEDED = "succeeded"
        FAILED = "failed"
        LOST = "lost"
        RELEASED = "released"
        CANCELLED = "cancelled"
        DEADLINE = "deadline"
        WAITING = "waiting"
        UNCERTAIN = "uncertain"

    run = models.ForeignKey(Run, models.DO_NOTHING, related_name="attempts", db_constraint=False)
    epoch = models.PositiveIntegerField()
    number = models.PositiveIntegerField(help_text="the run's attempt count at this claim")
    worker = models.ForeignKey(Worker, models.DO_NOTHING, null=True, db_constraint=False)
    pid = models.IntegerField(null=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    outcome = models.TextField(choices=Outcome)
    error = models.TextField(default="")
    traceback = models.TextField(default="")

    class Meta:
        managed = False
        db_table = "runs_attempt"
        ordering = ["epoch"]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.run_id}"


class AttemptRow(models.Model):
    """The outcome of a claim, as it is stored; written once, when the claim ends."""

    run = models.ForeignKey(Run, models.CASCADE, related_name="+", db_index=False)
    epoch = models.PositiveIntegerField()
    number = models.PositiveIntegerField()
    worker = models.ForeignKey(
        Worker, models.DO_NOTHING, null=True, db_constraint=False, db_index=False, related_name="+"
    )
    pid = models.IntegerField(null=True)
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField()
    outcome = models.TextField(choices=Attempt.Outcome)
    error = models.TextField(default="")
    traceback = models.TextField(default="")

    class Meta:
        default_permissions = ()
        constraints = [models.UniqueConstraint(fields=["run", "epoch"], name="attempt_one_per_claim")]

    def __str__(self) -> str:
        return f"attempt {self.number} of {self.run_id}"
