"""`/api/v1/reminders/`"""

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.body import Body
from runs.api.resource import Resource
from runs.api.shown import Shown
from triggers.api.fields import naming
from triggers.models import Schedule, Trigger
from triggers.schedules.clock import LONGEST_TEXT, LONGEST_ZONE
from triggers.schedules.reminders import TEXT_LENGTH, remind, text_of
from triggers.schedules.rules.words import read_rule


class ReminderBody(Body):
    when = serializers.CharField(max_length=LONGEST_TEXT, help_text='such as "in 20 minutes" or "tomorrow at 9:00"')
    tz = serializers.CharField(default="UTC", max_length=LONGEST_ZONE, help_text="IANA zone of `when`")
    agent = serializers.CharField(default="", help_text="agent to wake; or give `trigger`")
    trigger = serializers.SlugRelatedField[Trigger](
        slug_field="slug", queryset=Trigger.objects.all(), required=False, default=None, help_text="slug"
    )
    text = serializers.CharField(max_length=TEXT_LENGTH)


class ReminderSerializer(Shown):
    schedule = serializers.IntegerField(source="pk", help_text="id of its schedule")
    name = serializers.CharField(source="task.name")
    at = serializers.DateTimeField(source="task.clocked.clocked_time")
    trigger = serializers.CharField(source="trigger.slug")
    agent = serializers.CharField(source="trigger.agent")
    text = serializers.SerializerMethodField()

    def get_text(self, schedule: Schedule) -> str:
        return text_of(schedule)


class ReminderResource(Resource):
    """Reminders: one wake each, with a text."""

    required_permissions = {"create": "triggers.add_schedule"}
    serializer_class = ReminderSerializer

    @extend_schema(request=ReminderBody, responses={201: ReminderSerializer})
    def create(self, request: Request) -> Response:
        """Wake an agent once, with a text in the event's data."""
        body = ReminderBody.read(request)
        target = {"agent": body["agent"], "trigger": body["trigger"]}
        with naming("when"):
            rule = read_rule(body["when"], body["tz"])
            schedule = remind(when=rule, text=body["text"], by=str(request.user), **target)
        return Response(ReminderSerializer(schedule).data, status=201)
