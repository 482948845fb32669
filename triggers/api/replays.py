"""`/api/v1/replays/`"""

from dataclasses import asdict
from typing import Any

from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers, status
from rest_framework.decorators import action
from rest_framework.mixins import ListModelMixin, RetrieveModelMixin
from rest_framework.request import Request
from rest_framework.response import Response

from agents.kernel.redaction import shown_json
from runs.api.body import Body
from runs.api.resource import Refusal, Resource
from runs.api.shown import Shown
from runs.shadow.process import NotTried, report_of
from triggers.api.events_json import EventSerializer
from triggers.api.fields import InstantInUtc, naming
from triggers.events.search import FieldIs, Search
from triggers.models import Replay, Trigger
from triggers.replays.control import cancel_replay, pause_replay, resume_replay
from triggers.replays.preview import MOST, Preview, preview, sample
from triggers.replays.progress import progress, triggers_of
from triggers.replays.start import FASTEST, LEAST_URGENT, USUAL_RATE, start_replay, within


class ProgressOfReplay(Shown):
    """Numbers of events; of runs, by status."""

    total = serializers.IntegerField(help_text="events of the search when it started")
    taken = serializers.IntegerField(help_text="of the total, processed so far")
    dispatched = serializers.IntegerField(help_text="of those taken, given to the dispatcher")
    without_payload = serializers.IntegerField(help_text="skipped: retention or erasure removed the payload")
    unheard = serializers.IntegerField(help_text="skipped: none of the triggers listens to the event")
    waiting = serializers.IntegerField(help_text="wait for dispatch")
    runs = serializers.DictField(child=serializers.IntegerField())
    obstacle = serializers.CharField(help_text="why it does not progress; empty: it does")


class ReplaySerializer(Shown, serializers.ModelSerializer[Replay]):
    """A replay without its progress."""

    triggers = serializers.SerializerMethodField(help_text="slugs of the chosen triggers; empty: all that match")

    class Meta:
        model = Replay
        fields = [
            "id", "search", "start", "end", "triggers", "rate", "priority", "status", "total", "dispatched",
            "without_payload", "unheard", "by", "created_at", "ended_at",
        ]  # fmt: skip
        read_only_fields = fields

    def get_triggers(self, replay: Replay) -> list[str]:
        return [slug or str(id) for id, slug in triggers_of(replay)]


class ReplayDetailSerializer(ReplaySerializer):
    progress = serializers.SerializerMethodField()

    class Meta(ReplaySerializer.Meta):
        fields = [*ReplaySerializer.Meta.fields, "progress"]
        read_only_fields = fields

    @extend_schema_field(ProgressOfReplay)
    def get_progress(self, replay: Replay) -> dict[str, Any]:
        return asdict(progress(replay))


class ReplaySearchBody(Body):
    """Which events, and to which triggers."""

    source = serializers.CharField(required=False, default="", max_length=255, help_text="slug of the source")  # type: ignore[assignment]
    type = serializers.CharField(
        required=False, default="", max_length=255, help_text="a type, or a pattern such as order.*"
    )
    subject = serializers.CharField(required=False, default="", max_length=1024, help_text="the exact subject")
    start = InstantInUtc(required=False, default=None, help_text="received from this time on, in UTC without an offset")
    end = InstantInUtc(required=False, default=None, help_text="received before this time; default: now")
    field = serializers.ListField(
        child=serializers.CharField(max_length=2001),
        required=False,
        default=list,
        help_text="each path=value, as in a search",
    )
    triggers = serializers.SlugRelatedField[Trigger](
        slug_field="slug",
        queryset=Trigger.objects.all(),
        many=True,
        required=False,
        default=[],  # type: ignore[arg-type]  # of many
        help_text="only to these; default: all that match",
    )

    @classmethod
    def search(cls, given: dict[str, Any]) -> Search:
        """Takes its part out of a valid body. Raises RuleError."""
        fields = tuple(FieldIs.parse(text) for text in given.pop("field"))
        names = ("source", "type", "subject", "start", "end")
        return Search(**{name: given.pop(name) for name in names}, fields=fields)


class ReplayStartBody(ReplaySearchBody):
    all = serializers.BooleanField(default=False, help_text="all events; required if no field of the search is given")
    events = serializers.IntegerField(
        required=False, default=None, min_value=1, help_text="as the preview counted them: refused if there are more"
    )
    rate = serializers.FloatField(default=USUAL_RATE, help_text=f"events per second, at most {FASTEST:g}")
    priority = serializers.IntegerField(
        default=LEAST_URGENT, help_text=f"of its runs: 0 is most urgent, {LEAST_URGENT} least"
    )


class ReplayPreviewBody(ReplaySearchBody):
    shadow = serializers.BooleanField(
        default=False,
        help_text="also execute a shadow run of the newest event that a trigger matches; takes up to a minute",
    )


class ReplayListenerSerializer(Shown):
    trigger = serializers.CharField()
    events = serializers.IntegerField(help_text="that it listens to, before its filter")


class ReplaySampleSerializer(Shown):
    event = EventSerializer()
    triggers = serializers.ListField(child=serializers.CharField(), help_text="that match it today")


class ReplayPreviewSerializer(Shown):
    events = serializers.IntegerField(help_text=f"of the search, counted up to {MOST + 1}: a replay has at most {MOST}")
    without_payload = serializers.IntegerField(help_text="of these, skipped: their payload was removed")
    unheard = serializers.IntegerField(help_text="of these, skipped: none of the triggers listens to them")
    triggers = ReplayListenerSerializer(many=True)
    sample = ReplaySampleSerializer(many=True, help_text="the newest events")
    shadow = serializers.JSONField(help_text="what the shadow run would do; null: not requested, or no event matches")


class ReplayResource(ListModelMixin, RetrieveModelMixin, Resource):
    """Replays of many events at a rate."""

    required_permissions = {
        "list": "triggers.view_replay",
        "retrieve": "triggers.view_replay",
        "create": "triggers.replay_event",
        "preview": "triggers.replay_event",
        "pause": "triggers.replay_event",
        "resume": "triggers.replay_event",
        "cancel": "triggers.replay_event",
    }
    queryset = Replay.objects.all()
    serializer_class = ReplayDetailSerializer

    @extend_schema(responses=ReplaySerializer)
    def list(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Replays, newest first."""
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(ReplaySerializer(page, many=True).data)

    @extend_schema(request=ReplayStartBody, responses={201: ReplayDetailSerializer, 409: Refusal})
    def create(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Start a replay."""
        given = ReplayStartBody.read(request)
        with naming("search"):
            search = ReplaySearchBody.search(given)
            everything, expected = given.pop("all"), given.pop("events")
            started = start_replay(search, **given, everything=everything, expected=expected, by=str(request.user))
        return Response(ReplayDetailSerializer(started).data, status=status.HTTP_201_CREATED)

    @extend_schema(request=ReplayPreviewBody, responses=ReplayPreviewSerializer)
    @action(detail=False, methods=["post"])
    def preview(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """A preview of a replay. Changes nothing; a shadow run is rolled back."""
        given = ReplayPreviewBody.read(request)
        with naming("search"):
            search = within(ReplaySearchBody.search(given))
            found = preview(search, given["triggers"])
        return Response(_preview_json(found, search, given, by=str(request.user)))

    @extend_schema(request=None, responses={200: ReplayDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def pause(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Take no more events until it is resumed."""
        return Response(ReplayDetailSerializer(pause_replay(self.get_object(), by=str(request.user))).data)

    @extend_schema(request=None, responses={200: ReplayDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Go on at its rate."""
        return Response(ReplayDetailSerializer(resume_replay(self.get_object(), by=str(request.user))).data)

    @extend_schema(request=None, responses={200: ReplayDetailSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def cancel(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Take no more events, and cancel runs that have not started. Running runs finish."""
        return Response(ReplayDetailSerializer(cancel_replay(self.get_object(), by=str(request.user))).data)


def _preview_json(found: Preview, search: Search, given: dict[str, Any], *, by: str) -> dict[str, Any]:
    sampled = sample(search, given["triggers"])
    shadow = None
    tries = [(one.event, trigger) for one in sampled for trigger in one.triggers]
    if given["shadow"] and tries:
        event, trigger = tries[0]
        try:
            shadow = report_of(["shadow", str(event.pk), "--trigger", trigger.slug, "--by", by])
        except NotTried as why_not:
            shadow = {"error": str(why_not)}
    return {
        "events": found.events,
        "without_payload": found.without_payload,
        "unheard": found.unheard,
        "triggers": [{"trigger": one.trigger.slug, "events": one.events} for one in found.listeners],
        "sample": [
            {"event": EventSerializer(one.event).data, "triggers": [trigger.slug for trigger in one.triggers]}
            for one in sampled
        ],
        "shadow": shown_json(shadow),
    }
