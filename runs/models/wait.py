import re
from typing import Any

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from agents.kernel.redaction import shown

from .run import Run


class Wait(models.Model):
    """A wait in a durable run's journal. While it is open, the run needs no process and no broker message."""

    class Kind(models.TextChoices):
        TIME = "time"
        EVENT = "event"
        APPROVAL = "approval"
        CHILDREN = "children"
        BUDGET = "budget"
        SESSION = "session"
        MODEL = "model"

    class Status(models.TextChoices):
        OPEN = "open"
        DONE = "done", "what it waited for came"
        EXPIRED = "expired", "its time was over first"
        CLOSED = "closed", "its run was stopped; a requeue opens it again"

    run = models.ForeignKey(Run, models.CASCADE, related_name="waits", db_index=False)
    key = models.TextField()
    position = models.PositiveIntegerField()
    is_keyed = models.BooleanField(default=False, help_text="it has a key of its own, so its order is free")
    kind = models.TextField(choices=Kind)
    status = models.TextField(choices=Status, default=Status.OPEN)
    due_at = models.DateTimeField(null=True, help_text="its deadline")
    event_type = models.TextField(default="")
    match = models.JSONField(null=True, help_text="path in the event's data → value")
    match_shape = models.TextField(default="", help_text="the paths of `match`")
    match_hash = models.TextField(default="", help_text="a hash of its values")
    event_id = models.UUIDField(null=True, help_text="the event that ended the wait")
    children = ArrayField(models.UUIDField(), default=list)
    looked_at = models.DateTimeField(null=True, help_text="when the look back for earlier events ended")
    look_after = models.DateTimeField(null=True, help_text="when an unfinished look continues")
    looked_to = models.BigIntegerField(null=True, help_text="`seq` of the last event that an unfinished look has read")
    look_failures = models.PositiveSmallIntegerField(db_default=0, help_text="looks in a row that failed")
    look_error = models.TextField(db_default="", help_text="why the last of them failed")
    asked = models.JSONField(
        null=True,
        help_text="wait for budget: the most that the step may cost, and the budget without room for it; wait for a session: its "
        "name, and the run that held it; wait for a model: its name",
    )
    created_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["run", "key"], name="wait_once"),
            models.UniqueConstraint(fields=["run"], name="wait_one_open", condition=Q(status="open")),
            models.CheckConstraint(
                name="wait_kind_known",
                condition=Q(kind__in=["time", "event", "approval", "children", "budget", "session", "model"]),
            ),
            models.CheckConstraint(
                name="wait_ended_has_time",
                condition=Q(status="open", ended_at=None)
                | Q(status__in=["done", "expired", "closed"], ended_at__isnull=False),
            ),
            models.CheckConstraint(name="wait_for_time_has_one", condition=~Q(kind="time") | Q(due_at__isnull=False)),
        ]
        indexes = [
            models.Index(fields=["due_at"], name="wait_due", condition=Q(status="open", due_at__isnull=False)),
            models.Index(
                fields=["event_type", "match_shape", "match_hash"],
                name="wait_by_match",
                condition=Q(status="open", kind="event"),
            ),
            models.Index(
                fields=["id"],
                name="wait_unlooked",
                condition=Q(status="open", looked_at=None, kind__in=["event", "children"]),
            ),
            models.Index(fields=["id"], name="wait_for_approval", condition=Q(status="open", kind="approval")),
            models.Index(
                fields=["due_at", "id"], name="wait_approval_by_end", condition=Q(status="open", kind="approval")
            ),
            models.Index(fields=["id"], name="wait_for_budget", condition=Q(status="open", kind="budget")),
            models.Index(fields=["id"], name="wait_for_session", condition=Q(status="open", kind="session")),
            models.Index(fields=["id"], name="wait_for_model", condition=Q(status="open", kind="model")),
            models.Index(fields=["event_id"], name="wait_by_event", condition=Q(event_id__isnull=False)),
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.run_id}"


class Approval(models.Model):
    """A question of a run to a person. It can be decided once, while its wait is open, and only for the arguments of its digest."""

    OF_TOOLS = "approval:llm "  # prefix of the keys of waits in which a tool of run.llm needs approval
    OF_GRAPHS = "approval:graph"  # prefix of the keys of waits for the answer to an interrupt of a graph
    QUESTIONS = r" answer( \d+)?$"  # suffix of the keys of such waits for an answer instead of an approval
    REPLIES = r": reply \S+( \d+)?$"  # the same, of an answer in the thread of the run
    ANSWER = "answer"  # the argument that the answer stands in

    class Decision(models.TextChoices):
        APPROVE = "approve"
        EDIT = "edit", "approved, with other arguments"
        DENY = "deny"

    class OnExpiry(models.TextChoices):
        DENY = "deny", "counts as denied"
        FAIL = "fail", "fails the run"

    id = models.UUIDField(primary_key=True, editable=False)
    wait = models.OneToOneField(Wait, models.CASCADE, related_name="approval")
    question = models.TextField()
    detail = models.TextField(default="")
    arguments = models.JSONField(null=True, help_text="what is to be done, if approved")
    digest = models.TextField(help_text="SHA-256 of question and arguments, as hex")
    on_expiry = models.TextField(choices=OnExpiry, default=OnExpiry.DENY)
    decision = models.TextField(choices=Decision, default="", blank=True)
    decided_arguments = models.JSONField(null=True)
    decided_digest = models.TextField(default="")
    decided_by = models.TextField(default="")
    decided_at = models.DateTimeField(null=True)
    reason = models.TextField(default="")

    class Meta:
        permissions = [("decide_approval", "Can decide approvals")]
        constraints = [
            models.CheckConstraint(
                name="approval_decision_known", condition=Q(decision__in=["", "approve", "edit", "deny"])
            ),
            models.CheckConstraint(
                name="approval_decision_has_author",
                condition=Q(decision="", decided_at=None)
                | (~Q(decision="") & ~Q(decided_by="") & Q(decided_at__isnull=False)),
            ),
        ]

    def __str__(self) -> str:
        return shown(self.question)

    @property
    def is_question(self) -> bool:
        """Does the approval request a text as its answer? The answer is an edit of its argument `answer`."""
        key = self.wait.key
        is_of_tool = key.startswith(self.OF_TOOLS) and re.search(self.QUESTIONS, key) is not None
        return is_of_tool and isinstance(self.arguments, dict) and self.ANSWER in self.arguments

    @property
    def is_reply(self) -> bool:
        """Is an answer in the thread of the run to be approved? There, it is not shown before."""
        key = self.wait.key
        return key.startswith(self.OF_TOOLS) and re.search(self.REPLIES, key) is not None

    def answered(self, text: str) -> dict[str, Any]:
        """The arguments with this answer."""
        asked = self.arguments if isinstance(self.arguments, dict) else {}
        return {**asked, self.ANSWER: text}

    @property
    def status(self) -> str:
        """pending, approved, edited, denied, expired, or closed (its run was stopped before a decision)."""
        if self.decision:
            return {"approve": "approved", "edit": "edited", "deny": "denied"}[self.decision]
        return {"open": "pending", "expired": "expired"}.get(self.wait.status, "closed")
