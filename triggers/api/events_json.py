"""Events, triggers and sources as JSON."""

from typing import Any

from rest_framework import serializers

from runs.api.body import Body
from runs.api.shown import Shown
from triggers.api.fields import InstantInUtc, ReportSerializer
from triggers.dispatch.offers import count
from triggers.models import Decision, Event, Gate, Redispatch, Source, Trigger
from triggers.sources.webhooks.limits import limit_fields
from triggers.sources.webhooks.scheme import schemes


class DecisionSerializer(Shown, serializers.ModelSerializer[Decision]):
    trigger = serializers.SlugRelatedField[Trigger](slug_field="slug", read_only=True)

    class Meta:
        model = Decision
        fields = ["trigger", "replay_id", "outcome", "reason", "run_id", "created_at"]
        read_only_fields = fields


class EventSerializer(Shown, serializers.ModelSerializer[Event]):
    """An event without its payload; `source` is the source here, `ce_source` the sender's own name for itself."""

    source = serializers.SlugRelatedField[Source](slug_field="slug", read_only=True)  # type: ignore[assignment]  # a field, by its metaclass

    class Meta:
        model = Event
        fields = [
            "id", "source", "ce_source", "ce_id", "type", "subject", "time", "received_at", "dispatched_at",
            "payload_removed_at", "root_id", "cause_event_id", "cause_run_id", "depth", "chain", "is_tainted",
        ]  # fmt: skip
        read_only_fields = fields


class EventDetailSerializer(EventSerializer):
    """An event with its payload, and the reasons why triggers that it matched started no run."""

    decisions = DecisionSerializer(many=True, read_only=True)
    target_deleted = serializers.BooleanField(
        source="has_lost_its_target",
        read_only=True,
        help_text="its target trigger has been deleted, together with its decisions",
    )

    class Meta(EventSerializer.Meta):
        fields = [
            *EventSerializer.Meta.fields, "data", "data_error", "headers", "body_sha256", "target_deleted",
            "decisions",
        ]  # fmt: skip
        read_only_fields = fields


class GateSerializer(Shown, serializers.ModelSerializer[Gate]):
    class Meta:
        model = Gate
        fields = ["quiet", "fired", "failed", "in_a_row", "last_answer", "last_reason", "last_at", "state"]
        read_only_fields = fields


class TriggerSerializer(Shown, serializers.ModelSerializer[Trigger]):
    status = serializers.CharField(read_only=True, help_text="active, paused or disabled")
    held = serializers.SerializerMethodField(
        help_text="events held while paused, or still to run after a resume; null: neither"
    )

    gate = GateSerializer(
        read_only=True, allow_null=True, help_text="what its agent's gate has answered; null: nothing"
    )

    def get_held(self, trigger: Trigger) -> int | None:
        return count("held", trigger.pk) if trigger.is_paused or trigger.resuming_at else None

    class Meta:
        model = Trigger
        fields = [
            "id", "slug", "status", "agent", "source", "types", "filter", "input", "key", "key_limit", "overlap",
            "policy", "tools", "overrides", "enabled", "paused_at", "paused_reason", "resuming_at", "held",
            "failures_in_a_row", "gate", "created_at",
        ]  # fmt: skip
        read_only_fields = fields


class SourceSerializer(Shown, serializers.ModelSerializer[Source]):
    limits = serializers.SerializerMethodField(help_text="of a webhook; null: it has none")

    class Meta:
        model = Source
        fields = ["id", "slug", "kind", "enabled", "trusted", "limits", "created_at"]
        read_only_fields = fields

    def get_limits(self, source: Source) -> dict[str, str | int] | None:
        if source.kind not in schemes():
            return None
        return {field.name: source.limits.get(field.name, field.default) for field in limit_fields()}


class SourceBody(Body):
    enabled = serializers.BooleanField(required=False)
    trusted = serializers.BooleanField(required=False, help_text="no stranger writes its data")
    limits = serializers.DictField(
        required=False,
        help_text="of a webhook; those that are given are changed: "
        + ", ".join(field.name for field in limit_fields()),
    )


class FireBody(Body):
    data = serializers.JSONField(allow_null=True, default=None, help_text="the data of the event")  # type: ignore[assignment]  # a field, by its metaclass
    report = ReportSerializer(
        required=False,
        allow_null=True,
        default=None,
        help_text="where the end of its run is reported, also if no run comes of it",
    )


class PauseBody(Body):
    reason = serializers.CharField(required=False, default="", allow_blank=True, max_length=1000)


class ResumeBody(Body):
    held = serializers.ChoiceField(["run", "drop"], default="run", help_text="run or drop the events that were held")


class ReplayBody(Body):
    trigger = serializers.SlugRelatedField[Trigger](
        slug_field="slug",
        queryset=Trigger.objects.all(),
        required=False,
        default=None,
        help_text="slug of the only trigger to replay to; default: all that match",
    )


class RedispatchBody(Body):
    since = InstantInUtc(
        required=False,
        default=None,
        help_text="events that ended in an error from this time on, in UTC if it has no offset",
    )
    all = serializers.BooleanField(default=False, help_text="all that ever did; required if there is no `since`")

    def validate(self, attrs: dict[str, Any]) -> dict[str, Any]:
        if attrs["all"] == (attrs["since"] is not None):
            raise serializers.ValidationError({"since": ["Give either since, or all: true."]})
        return attrs


class RedispatchedSerializer(Shown):
    events = serializers.IntegerField(help_text="number of events that are dispatched again, in batches")


class EventIdSerializer(Shown):
    event = serializers.UUIDField()


class RedispatchSerializer(Shown, serializers.ModelSerializer[Redispatch]):
    trigger = serializers.SlugRelatedField[Trigger](slug_field="slug", read_only=True, allow_null=True)

    class Meta:
        model = Redispatch
        fields = ["event", "trigger", "replay_id", "by", "created_at"]
        read_only_fields = fields
