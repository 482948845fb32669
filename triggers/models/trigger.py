import uuid

from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now


class Trigger(models.Model):
    """A rule that matches events to an agent, with a policy."""

    class Overlap(models.TextChoices):
        ALLOW = "allow"
        SKIP = "skip"
        QUEUE_ONE = "queue_one"
        QUEUE = "queue"
        CANCEL_PREVIOUS = "cancel_previous"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    slug = models.SlugField(max_length=100, unique=True)
    agent = models.TextField()

    source = models.TextField(default="", blank=True, help_text="slug of the one source it listens to; empty: any")
    types = ArrayField(
        models.TextField(),
        default=list,
        blank=True,
        help_text='event type globs such as "invoice.*"; empty: none but events aimed at it',
    )
    filter = models.TextField(
        default="", blank=True, help_text="CEL, such as event.data.amount > 100; empty: every event"
    )
    input = models.JSONField(
        default=dict,
        blank=True,
        help_text='input name → CEL, such as {"id": "event.data.id"}; empty: the event\'s data',
    )

    key = models.TextField(
        default="", blank=True, help_text="CEL; runs of one key do not overlap. Empty: the trigger itself"
    )
    key_limit = models.PositiveSmallIntegerField(default=1, help_text="how many runs of one key at once")
    overlap = models.TextField(
        choices=Overlap, default=Overlap.ALLOW, help_text="what a new event does while a run of its key is live"
    )
    policy = models.JSONField(
        default=dict,
        blank=True,
        help_text="how its runs are executed (see runs.models.policy.Policy) and how many there may be "
        "(see triggers.matching.flow_control.Intake)",
    )

    tools = ArrayField(
        models.TextField(),
        null=True,
        blank=True,
        help_text="names of the tools that LLM calls of its runs may use; null: all that the agent has; empty: none",
    )

    declared = models.JSONField(
        null=True, editable=False, help_text="fields that the code declares; null: made by an operator"
    )
    overrides = ArrayField(
        models.TextField(), default=list, editable=False, help_text="declared fields an operator has taken over"
    )
    enabled = models.BooleanField(default=True)
    paused_at = models.DateTimeField(null=True, editable=False)
    paused_reason = models.TextField(default="", editable=False)
    resuming_at = models.DateTimeField(null=True, editable=False, help_text="since when its held events are dispatched")
    failures_in_a_row = models.PositiveIntegerField(default=0, editable=False)
    created_at = models.DateTimeField(db_default=Now(), editable=False)

    class Meta:
        permissions = [("fire_trigger", "Can fire triggers"), ("pause_trigger", "Can pause and resume triggers")]
        constraints = [
            models.CheckConstraint(
                name="trigger_overlap_known",
                condition=Q(overlap__in=["allow", "skip", "queue_one", "queue", "cancel_previous"]),
            ),
            models.CheckConstraint(
                name="trigger_cancel_previous_leaves_one", condition=~Q(overlap="cancel_previous") | Q(key_limit=1)
            ),
            models.CheckConstraint(name="trigger_key_limit", condition=Q(key_limit__gte=1, key_limit__lte=1000)),
        ]
        indexes = [
            models.Index(
                fields=["paused_at"], name="trigger_paused", condition=Q(enabled=True, paused_at__isnull=False)
            ),
            models.Index(fields=["agent", "slug"], name="trigger_by_agent"),
        ]

    def __str__(self) -> str:
        return self.slug

    @property
    def is_paused(self) -> bool:
        return self.paused_at is not None

    @property
    def status(self) -> str:
        """active, paused or disabled."""
        if not self.enabled:
            return "disabled"
        return "paused" if self.is_paused else "active"
