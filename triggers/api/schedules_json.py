"""Schedules as JSON: the API's responses and request bodies."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from runs.api.body import Body
from runs.api.interval import SecondsField
from runs.api.resource import Query
from runs.api.shown import Shown
from triggers.api.events_json import DecisionSerializer
from triggers.api.fields import Instant, ReportSerializer, Zone
from triggers.models import ExclusionCalendar, Schedule, Skip, Trigger
from triggers.schedules import excluded_days
from triggers.schedules.clock import LONGEST_TEXT, LONGEST_ZONE
from triggers.schedules.explain.why import WhyAnswer
from triggers.schedules.preview import describe, upcoming
from triggers.schedules.terms import active_hours as hours
from triggers.schedules.terms.policy import MOST_CALENDARS, NAMES, SchedulePolicy

LONGEST = 100  # next fires that one answer may hold


@extend_schema_field({"oneOf": [{"type": "string", "example": "30m"}, {"type": "number", "description": "seconds"}]})
class Length(serializers.Field[Any, Any, Any, Any]):
    """A duration, as text or in seconds; `SchedulePolicy` parses it."""

    def to_internal_value(self, data: Any) -> Any:
        return data


class ScheduleSerializer(Shown, serializers.ModelSerializer[Schedule]):
    """A schedule; durations are in seconds."""

    name = serializers.CharField(source="task.name", read_only=True)
    rule = serializers.SerializerMethodField(help_text="when it fires, in words")
    next_fires = serializers.SerializerMethodField(help_text="the next ten nominal times, in the schedule's zone")
    enabled = serializers.BooleanField(source="task.enabled", read_only=True)
    status = serializers.CharField(
        read_only=True, help_text="active, paused, or why it never fires again: done, used_up, over, problem"
    )
    trigger = serializers.SlugRelatedField[Trigger](
        slug_field="slug", read_only=True, allow_null=True, help_text="null: an ordinary periodic task"
    )
    start = serializers.DateTimeField(source="task.start_time", read_only=True, allow_null=True)
    end = serializers.DateTimeField(source="task.expires", read_only=True, allow_null=True)
    exclude = serializers.SlugRelatedField[ExclusionCalendar](slug_field="slug", many=True, read_only=True)
    catch_up_window = SecondsField(read_only=True, allow_null=True)
    jitter = SecondsField(read_only=True)
    spread = SecondsField(read_only=True)
    pace_min = SecondsField(read_only=True, allow_null=True)
    pace_max = SecondsField(read_only=True, allow_null=True)

    class Meta:
        model = Schedule
        fields = [
            "id", "name", "rule", "enabled", "status", "trigger", *NAMES,
            "next_fire_at", "due_at", "next_fires", "last_fire_at", "fired_at", "fires", "accounted_until",
            "rest", "problem", "paused_at", "paused_by", "paused_note", "created_at", "edited_at",
        ]  # fmt: skip
        read_only_fields = fields
        extra_kwargs = {"rest": {"allow_blank": True}}

    def get_rule(self, schedule: Schedule) -> str:
        return describe(schedule)

    def get_next_fires(self, schedule: Schedule) -> list[datetime]:
        return upcoming(schedule)


class PolicyBody(Body):
    """The policy of a schedule; null or empty resets a field to its default."""

    is_large = False  # permission to view schedules includes previews

    kind = serializers.CharField(required=False, allow_null=True, help_text="schedule, heartbeat or reminder")
    data = serializers.JSONField(required=False, allow_null=True, help_text="what its events say besides their times")  # type: ignore[assignment]  # a field, by its metaclass
    catch_up = serializers.CharField(required=False, allow_null=True, help_text="latest, skip or all")
    catch_up_max = serializers.IntegerField(required=False, allow_null=True)
    catch_up_window = Length(required=False, allow_null=True)
    jitter = Length(required=False, allow_null=True)
    spread = Length(required=False, allow_null=True)
    active_hours = serializers.CharField(
        required=False,
        allow_null=True,
        allow_blank=True,
        max_length=hours.LONGEST_TEXT,
        help_text='such as "mon-fri 09:00-17:00"',
    )
    active_zone = serializers.CharField(required=False, allow_null=True, allow_blank=True, max_length=LONGEST_ZONE)
    exclude = serializers.ListField(
        child=serializers.CharField(max_length=100),
        required=False,
        allow_null=True,
        max_length=MOST_CALENDARS,
        help_text="slugs of calendars",
    )
    max_fires = serializers.IntegerField(required=False, allow_null=True)
    pace_min = Length(required=False, allow_null=True)
    pace_max = Length(required=False, allow_null=True)
    start = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=LONGEST_TEXT, help_text="an instant with offset"
    )
    end = serializers.CharField(
        required=False, allow_null=True, allow_blank=True, max_length=LONGEST_TEXT, help_text="an instant with offset"
    )

    @staticmethod
    def policy(body: Mapping[str, Any], base: SchedulePolicy | None = None) -> SchedulePolicy:
        """The policy in a body; fields that are not given are those of `base`. RuleError names the field."""
        return SchedulePolicy.parse({name: body[name] for name in NAMES if name in body}, base)


class PreviewBody(PolicyBody):
    when = serializers.CharField(
        max_length=LONGEST_TEXT, help_text='such as "every weekday at 09:00", "0 9 * * mon-fri", "every 30m"'
    )
    tz = Zone(default="UTC")


class CreateBody(PreviewBody):
    name = serializers.CharField(max_length=200)
    agent = serializers.CharField(default="", help_text="agent to wake, by a new trigger; or give `trigger`")
    trigger = serializers.SlugRelatedField[Trigger](
        slug_field="slug",
        queryset=Trigger.objects.all(),
        default=None,
        allow_null=True,
        help_text="slug of the trigger to fire; or give `agent`",
    )

    def validate(self, body: Any) -> Any:
        if bool(body["agent"]) == bool(body["trigger"]):
            raise serializers.ValidationError({"agent": ["Give either agent or trigger."]})
        return body


class EditBody(PolicyBody):
    when = serializers.CharField(
        required=False, max_length=LONGEST_TEXT, help_text="new rule; without `tz` in its current zone"
    )
    tz = Zone(required=False, help_text="zone of `when`; without `when`: new zone of its crontab")


class NoteBody(Body):
    note = serializers.CharField(required=False, default="", allow_blank=True, max_length=1000, help_text="why")


class RunNowBody(Body):
    report = ReportSerializer(
        required=False,
        allow_null=True,
        default=None,
        help_text="where the end of its run is reported, also if no run comes of it",
    )


class ScheduleQuery(Query):
    enabled = serializers.BooleanField(required=False, allow_null=True, default=None)
    kind = serializers.ChoiceField(Schedule.Kind.choices, required=False)
    trigger = serializers.CharField(required=False, help_text="slug of its trigger")
    q = serializers.CharField(required=False, max_length=200, help_text="a part of its name")


class FiresQuery(Query):
    count = serializers.IntegerField(min_value=1, max_value=LONGEST, default=10)


class WhyQuery(Query):
    at = Instant(help_text="time in question; without an offset: a local time in `tz`")
    tz = Zone(required=False, default="", help_text="default: the schedule's zone")


class FireSerializer(Shown):
    event = serializers.UUIDField(allow_null=True, help_text="null: an ordinary periodic task, whose message is sent")


class PreviewSerializer(Shown):
    rule = serializers.CharField(help_text="the parsed rule, in words")
    next_fires = serializers.ListField(child=serializers.DateTimeField())


class FiresSerializer(PreviewSerializer):
    due = serializers.ListField(
        child=serializers.DateTimeField(), help_text="when each of them fires: its nominal time plus spread and jitter"
    )


class SkipSerializer(Shown, serializers.ModelSerializer[Skip]):
    class Meta:
        model = Skip
        fields = ["id", "reason", "first", "last", "count", "detail", "created_at"]
        read_only_fields = fields


class FactSerializer(Shown):
    label = serializers.CharField()  # type: ignore[assignment]  # a field, by its metaclass
    text = serializers.CharField()


class AnswerSerializer(Shown):
    """Why a schedule did not fire at an instant, or the outcome of the fire."""

    verdict = serializers.CharField(
        help_text="the kind of the answer, such as ran, skipped, paused, not_named, to_come"
    )
    text = serializers.CharField(help_text="the answer for a person")
    at = serializers.DateTimeField(help_text="the instant in question, as parsed")
    zone = serializers.CharField()
    nominal = serializers.DateTimeField(allow_null=True, help_text="the nominal time in question; null: there is none")
    facts = serializers.SerializerMethodField()
    before = serializers.SerializerMethodField(help_text="the nominal time before")
    after = serializers.SerializerMethodField(help_text="the nominal time after")
    event = serializers.UUIDField(source="event_id", allow_null=True)
    run = serializers.UUIDField(source="run_id", allow_null=True)
    decision = DecisionSerializer(allow_null=True)
    skip = SkipSerializer(allow_null=True)

    @extend_schema_field(FactSerializer(many=True))
    def get_facts(self, answer: WhyAnswer) -> list[dict[str, str]]:
        return [{"label": label, "text": text} for label, text in answer.facts]

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_before(self, answer: WhyAnswer) -> datetime | None:
        return answer.nearest[0]

    @extend_schema_field(serializers.DateTimeField(allow_null=True))
    def get_after(self, answer: WhyAnswer) -> datetime | None:
        return answer.nearest[1]


class CalendarSerializer(Shown, serializers.ModelSerializer[ExclusionCalendar]):
    class Meta:
        model = ExclusionCalendar
        fields = ["slug", "days"]
        read_only_fields = fields


class CalendarBody(Body):
    slug = serializers.CharField(max_length=100)
    days = serializers.CharField(
        allow_blank=True,
        trim_whitespace=False,
        max_length=excluded_days.LONGEST_TEXT,
        help_text="one a line: 2026-12-25 Christmas · 2026-12-24..2027-01-06 Break · *-05-01",
    )


class DaysBody(Body):
    days = serializers.CharField(allow_blank=True, trim_whitespace=False, max_length=excluded_days.LONGEST_TEXT)
