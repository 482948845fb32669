from decimal import Decimal

from rest_framework import serializers

from runs.models import Attempt, Run
from runs.resource import Query
from runs.states import RunStatus


class AttemptSerializer(serializers.ModelSerializer[Attempt]):
    class Meta:
        model = Attempt
        fields = ["number", "epoch", "worker", "pid", "started_at", "ended_at", "outcome", "error", "traceback"]
        read_only_fields = fields


class RunSerializer(serializers.ModelSerializer[Run]):
    class Meta:
        model = Run
        fields = [
            "id",
            "status",
            "status_reason",
            "agent",
            "version",
            "trigger",
            "event_ids",
            "key",
            "queue",
            "priority",
            "attempt",
            "epoch",
            "parent_id",
            "forked_from_id",
            "replay_id",
            "root_id",
            "depth",
            "ready_at",
            "due_at",
            "claimed_at",
            "deadline_at",
            "cancel_requested_at",
            "result",
            "error",
            "created_at",
            "started_at",
            "finished_at",
            "payload_removed_at",
        ]
        read_only_fields = fields


class RunDetailSerializer(RunSerializer):
    """A run with what it was given and what became of each claim."""

    attempts = AttemptSerializer(many=True, read_only=True)

    class Meta(RunSerializer.Meta):
        fields = [*RunSerializer.Meta.fields, "input", "policy", "attempts"]
        read_only_fields = fields


class RunQuery(Query):
    event = serializers.UUIDField(required=False, help_text="runs this event started")
    trigger = serializers.SlugField(required=False, help_text="runs of the trigger with this slug")
    status = serializers.ChoiceField(RunStatus.choices, required=False)


class WaitQuery(Query):
    # Decimal refuses NaN and infinity.
    wait = serializers.DecimalField(
        max_digits=9,
        decimal_places=3,
        min_value=0,
        default=Decimal(0),
        help_text="seconds to wait for the run to finish; more than 30 count as 30",
    )
