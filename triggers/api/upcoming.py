"""`/api/v1/upcoming/`: what wakes next."""

from datetime import timedelta
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import Query, Resource
from runs.api.shown import Shown
from runs.db.sql import database_now
from triggers.api.fields import InstantInUtc
from triggers.upcoming.entry import KINDS, Coming, kinds_for
from triggers.upcoming.listing import ahead

HORIZON = timedelta(days=1)
MOST = 500


class UpcomingQuery(Query):
    until = InstantInUtc(
        required=False, help_text="end of the time span, in UTC if it has no offset; default: a day from now"
    )
    limit = serializers.IntegerField(min_value=1, default=50, help_text=f"{MOST} at most")
    kind = serializers.MultipleChoiceField(choices=KINDS, required=False, help_text="only these kinds; may be repeated")
    agent = serializers.CharField(required=False, default="")


class ComingSerializer(Shown):
    at = serializers.DateTimeField(help_text="when it is due; a past time: it is late")
    nominal = serializers.DateTimeField(allow_null=True, help_text="the nominal time of its schedule")
    kind = serializers.ChoiceField(choices=KINDS)
    name = serializers.CharField()
    agent = serializers.CharField()
    trigger = serializers.CharField(help_text="slug; empty where there is none")
    why = serializers.CharField()
    times = serializers.SerializerMethodField(help_text="number of times within the time span")
    last = serializers.SerializerMethodField(help_text="the last of these times that was counted")
    is_endless = serializers.BooleanField(help_text="there are more times than were counted")
    schedule = serializers.IntegerField(source="schedule_id", allow_null=True)
    run = serializers.UUIDField(source="run_id", allow_null=True)
    calendar = serializers.UUIDField(source="source_id", allow_null=True, help_text="the source of a meeting")

    def get_times(self, coming: Coming) -> int:
        return 1 + len(coming.later)

    @extend_schema_field(serializers.DateTimeField())
    def get_last(self, coming: Coming) -> Any:
        return coming.later[-1] if coming.later else coming.at


@extend_schema_serializer(many=False)
class UpcomingListSerializer(Shown):
    results = ComingSerializer(many=True)
    next = serializers.CharField(allow_null=True, help_text="always null: ask for a later `until` or a higher limit")
    previous = serializers.CharField(allow_null=True)


class UpcomingResource(Resource):
    """Upcoming wakes: schedules, wakes set by runs, windows that close, starts of meetings, timers of waiting runs, delayed
    runs."""

    required_permissions = {"list": "triggers.view_schedule"}
    serializer_class = UpcomingListSerializer
    pagination_class = None

    @extend_schema(parameters=[UpcomingQuery], responses=UpcomingListSerializer)
    def list(self, request: Request) -> Response:
        """Upcoming wakes, soonest first, each schedule once. Requires `runs.view_run` for entries that runs have
        set, and `triggers.view_event` for meetings.
        """
        query, now = UpcomingQuery.read(request), database_now()
        until = query.get("until", now + HORIZON)
        if until <= now:
            raise serializers.ValidationError({"until": ["Enter a time in the future."]})
        kinds = set(query.get("kind") or KINDS) & set(kinds_for(request.user.has_perm))
        found = ahead(now, until, min(query["limit"], MOST), kinds=kinds, agent=query["agent"])
        return Response({"results": ComingSerializer(found, many=True).data, "next": None, "previous": None})
