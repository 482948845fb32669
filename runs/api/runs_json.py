from decimal import Decimal
from typing import Any, get_args

from django.db.models import Case, F, Func, IntegerField, When
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agents.graphs.values import without_bytes
from runs.actions.approve import Choice
from runs.actions.resolve import UncertainOutcome
from runs.actions.select import ApprovalStatus
from runs.api.approval_links import approval_link
from runs.api.body import Body
from runs.api.resource import Query
from runs.api.shown import Shown
from runs.models import Approval, Attempt, Run, Step, Wait
from runs.states import RunStatus

ENTRIES = 200  # most steps, and most waits, in the JSON of a run
SHOWN = 64 * 1024  # bytes of the largest output in the JSON of a run
OUTPUT_SIZE: Any = Func(F("output"), function="pg_column_size", output_field=IntegerField())


class AttemptSerializer(Shown, serializers.ModelSerializer[Attempt]):
    class Meta:
        model = Attempt
        fields = ["number", "epoch", "worker", "pid", "started_at", "ended_at", "outcome", "error", "traceback"]
        read_only_fields = fields


class RunSerializer(Shown, serializers.ModelSerializer[Run]):
    class Meta:
        model = Run
        fields = [
            "id", "status", "status_reason", "agent", "version", "begun_version", "trigger", "event_ids", "key", "queue", "priority",
            "attempt", "epoch", "parent_id", "forked_from_id", "replay_id", "root_id", "depth", "chain", "is_tainted",
            "ready_at", "due_at", "claimed_at", "deadline_at", "cancel_requested_at", "result", "error",
            "created_at", "started_at", "finished_at", "payload_removed_at",
        ]  # fmt: skip
        read_only_fields = fields


class StepSerializer(Shown, serializers.ModelSerializer[Step]):
    idempotency_key = serializers.CharField()
    output = serializers.JSONField(source="shown", help_text="null if it is larger than 64 KiB")
    output_size = serializers.IntegerField(allow_null=True, help_text="bytes, as stored")

    class Meta:
        model = Step
        fields = [
            "key", "position", "effect", "status", "attempts", "epoch", "idempotency_key", "arguments", "output", "output_size",
            "error", "error_kind", "usage", "started_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields

    def to_representation(self, step: Step) -> dict[str, Any]:
        told: dict[str, Any] = super().to_representation(step)
        return {**told, "output": without_bytes(told["output"])} if step.key.startswith(Step.OF_GRAPHS) else told


class WaitSerializer(Shown, serializers.ModelSerializer[Wait]):
    approval = serializers.UUIDField(source="approval_pk", allow_null=True)

    class Meta:
        model = Wait
        fields = [
            "key", "position", "kind", "status", "due_at", "event_type", "match", "event_id", "children", "approval", "asked",
            "created_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields


class RunDetailSerializer(RunSerializer):
    """A run with its input, policy, attempts and journal."""

    attempts = AttemptSerializer(many=True, read_only=True)
    step_count = serializers.SerializerMethodField()
    steps = serializers.SerializerMethodField(help_text=f"the first {ENTRIES}")
    waits = serializers.SerializerMethodField(help_text=f"the last {ENTRIES}, oldest first")

    class Meta(RunSerializer.Meta):
        fields = [*RunSerializer.Meta.fields, "input", "fired", "policy", "attempts", "step_count", "steps", "waits"]
        read_only_fields = fields

    def get_step_count(self, run: Run) -> int:
        return run.steps.count()

    @extend_schema_field(StepSerializer(many=True))
    def get_steps(self, run: Run) -> Any:
        shown = Case(When(output_size__lte=SHOWN, then=F("output")))
        steps = run.steps.defer("output").annotate(output_size=OUTPUT_SIZE).annotate(shown=shown)
        return StepSerializer(steps.order_by("position")[:ENTRIES], many=True).data

    @extend_schema_field(WaitSerializer(many=True))
    def get_waits(self, run: Run) -> Any:
        last = run.waits.annotate(approval_pk=F("approval__pk")).order_by("-position")[:ENTRIES]
        return WaitSerializer(list(reversed(last)), many=True).data


class ApprovalSerializer(Shown, serializers.ModelSerializer[Approval]):
    """A question of a run to a person, and the decision."""

    status = serializers.ChoiceField(ApprovalStatus.choices)
    run = serializers.UUIDField(source="wait.run_id")
    agent = serializers.CharField(source="wait.run.agent")
    created_at = serializers.DateTimeField(source="wait.created_at")
    expires_at = serializers.DateTimeField(source="wait.due_at", allow_null=True)
    url = serializers.SerializerMethodField(
        help_text="a page that decides the approval without a login; null if the token may not decide"
    )

    class Meta:
        model = Approval
        fields = [
            "id", "status", "run", "agent", "question", "detail", "arguments", "digest", "on_expiry", "created_at", "expires_at",
            "decision", "decided_arguments", "decided_digest", "decided_by", "decided_at", "reason", "url",
        ]  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {"decision": {"allow_blank": True}}

    def get_url(self, approval: Approval) -> str | None:
        request = self.context.get("request")  # no request on the command line
        if request is None or not request.user.has_perm("runs.decide_approval"):
            return None
        url: str = request.build_absolute_uri(approval_link(approval))
        return url


class ForkBody(Body):
    step = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="the first entry of the journal that is not copied"
    )
    input = serializers.JSONField(
        required=False, allow_null=True, help_text="replaces the input of the run; null: the data of its event"
    )


class SignalBody(Body):
    name = serializers.CharField(max_length=200)
    data = serializers.JSONField(required=False, default=None, allow_null=True)  # type: ignore[assignment]


class ResolveBody(Body):
    outcome = serializers.ChoiceField(get_args(UncertainOutcome))
    result = serializers.JSONField(
        required=False, default=None, allow_null=True, help_text="the output of the step that happened"
    )
    epoch = serializers.IntegerField(
        required=False,
        default=None,
        allow_null=True,
        min_value=0,
        help_text="refuse unless the run has this `epoch`: it rises before the run has another question",
    )


class DecideBody(Body):
    decision = serializers.ChoiceField(get_args(Choice))
    arguments = serializers.JSONField(
        required=False, default=None, allow_null=True, help_text='the edited arguments, with the decision "edit"'
    )
    reason = serializers.CharField(required=False, default="", allow_blank=True, max_length=1000)
    digest = serializers.CharField(
        required=False, default="", allow_blank=True, help_text="refuse unless the approval has this digest"
    )


class ApprovalQuery(Query):
    status = serializers.ChoiceField(ApprovalStatus.choices, required=False)


class RunQuery(Query):
    event = serializers.UUIDField(required=False, help_text="runs of the event with this id")
    trigger = serializers.SlugField(required=False, help_text="runs of the trigger with this slug")
    status = serializers.ChoiceField(RunStatus.choices, required=False)


class WaitQuery(Query):
    # Decimal refuses NaN and infinity.
    wait = serializers.DecimalField(
        max_digits=9,
        decimal_places=3,
        min_value=0,
        default=Decimal(0),
        help_text="seconds to wait for the run to finish; at most 30",
    )
