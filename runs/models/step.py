from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from .run import Run


class Step(models.Model):
    """A step or value in a durable run's journal, with its outcome, which a replay of the body gets instead of running the step again.

    `key` is the step's name, followed by `:<key>` if it has one. `position` counts all entries of the journal, including waits, in
    the order in which they began.
    """

    class Effect(models.TextChoices):
        TRANSACTIONAL = "transactional", "committed together with this entry"
        READ = "read", "changes nothing; may be repeated after a crash"
        IDEMPOTENT = "idempotent", "may be repeated after a crash, under the same idempotency key"
        AT_MOST_ONCE = "at_most_once", "never repeated; a person decides where its outcome is unknown"
        VALUE = "value", "the run's own time, id or random number"

    class Kind(models.TextChoices):
        STEP = "step", "a step of the body"
        LLM = "llm", "the beginning of a call of run.llm"
        MODEL = "model", "a request to a model"
        TOOL = "tool", "a tool that the model called"

    # Of a call of run.llm: what these hold is its conversation.
    CONVERSATION = (Kind.LLM, Kind.MODEL, Kind.TOOL)
    OF_GRAPHS = ("graph#", "graph:")  # prefixes of the keys of checkpoints, which hold conversations as well

    class Status(models.TextChoices):
        STARTED = "started"
        DONE = "done"
        FAILED = "failed"

    pk = models.CompositePrimaryKey("run_id", "key")
    run = models.ForeignKey(Run, models.CASCADE, related_name="steps", db_index=False)
    key = models.TextField()
    position = models.PositiveIntegerField()
    is_keyed = models.BooleanField(default=False, help_text="it has a key of its own, so its order is free")
    effect = models.TextField(choices=Effect)
    kind = models.TextField(choices=Kind, default=Kind.STEP, db_default=Kind.STEP)
    status = models.TextField(choices=Status)
    epoch = models.PositiveIntegerField(help_text="the claim that wrote this")
    claim = models.UUIDField(null=True, editable=False, help_text="identity of that claim")
    attempts = models.PositiveIntegerField(default=1)
    arguments = models.JSONField(null=True, help_text="what an at_most_once step was about to send")
    output = models.JSONField(null=True)
    error = models.TextField(default="")
    error_kind = models.TextField(default="", help_text="name of the exception's class")
    is_permanent = models.BooleanField(default=False, help_text="another attempt would fail the same way")
    usage = models.JSONField(null=True, help_text="of a model request: model, provider, tokens and cost")
    started_at = models.DateTimeField(db_default=Now())
    ended_at = models.DateTimeField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                name="step_effect_known",
                condition=Q(effect__in=["transactional", "read", "idempotent", "at_most_once", "value"]),
            ),
            models.CheckConstraint(name="step_kind_known", condition=Q(kind__in=["step", "llm", "model", "tool"])),
            models.CheckConstraint(
                name="step_ended_has_time",
                condition=Q(status="started", ended_at=None) | Q(status__in=["done", "failed"], ended_at__isnull=False),
            ),
            models.CheckConstraint(
                name="step_only_at_most_once_has_intent", condition=~Q(status="started") | Q(effect="at_most_once")
            ),
        ]

        indexes = [
            # What a run's requests to models used, without its other entries.
            models.Index(fields=["run"], name="step_with_usage", condition=Q(usage__isnull=False)),
            # What was used since an instant.
            models.Index(fields=["ended_at"], name="step_charged", condition=Q(kind__in=["model", "tool"])),
        ]

    def __str__(self) -> str:
        return f"{self.key} of {self.run_id}"

    @property
    def idempotency_key(self) -> str:
        """The key to send with an outside call of the step, the same at every attempt."""
        return f"{self.run_id}:{self.key}"
