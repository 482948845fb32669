"""The states of runs, the severities of problems, and the table of legal run transitions, which the database enforces too
(`runs_refuse_illegal_change` in `0010_one_check_of_a_run`)."""

from django.db.models import TextChoices


class RunStatus(TextChoices):
    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    UNCERTAIN = "uncertain"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class Severity(TextChoices):
    """The severity of a problem and of its alarm."""

    BAD = "bad"
    WARNING = "warning"


S = RunStatus

TRANSITIONS: dict[RunStatus, frozenset[RunStatus]] = {
    S.QUEUED: frozenset({S.RUNNING, S.CANCELLED}),
    S.RUNNING: frozenset({S.SUCCEEDED, S.QUEUED, S.WAITING, S.UNCERTAIN, S.FAILED, S.CANCELLED}),
    S.WAITING: frozenset({S.QUEUED, S.CANCELLED}),
    S.UNCERTAIN: frozenset({S.QUEUED, S.FAILED, S.CANCELLED}),
    S.FAILED: frozenset({S.QUEUED}),
    S.CANCELLED: frozenset({S.QUEUED}),
    S.SUCCEEDED: frozenset(),
}

FINISHED = frozenset({S.SUCCEEDED, S.FAILED, S.CANCELLED})
LIVE = frozenset(S) - FINISHED
LIVE_SQL = "(" + ", ".join(f"'{status}'" for status in S if status in LIVE) + ")"  # literal, for the partial indexes
REQUEUEABLE = frozenset({S.FAILED, S.CANCELLED})
