"""`/api/v1/overnight/`: what agents did overnight."""

from collections.abc import Mapping
from typing import Any

from django.conf import settings
from drf_spectacular.utils import extend_schema, extend_schema_serializer
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.resource import Query, Resource
from runs.api.shown import Shown
from runs.db.sql import database_now
from runs.models import Delivery
from triggers.api.fields import InstantInUtc, naming
from triggers.overnight.figures import SLOTS, Figures, Overnight, overnight
from triggers.overnight.night import LONGEST, Night, night_until

MOST = 500  # agents
COUNTS = ("woken", "runs", "quiet", "failed", "spoke", "incidents", "requests", "tokens", "unpriced")


class OvernightQuery(Query):
    to = InstantInUtc(required=False, help_text="end of the time span, in UTC if it has no offset; default: now")

    def get_fields(self) -> dict[str, Any]:
        # `from` is a keyword of Python.
        said = f"begin of the time span, at most {LONGEST.days} days before its end; default: 18:00 of the day before in WAKEFUL_ZONE"
        return {"from": InstantInUtc(required=False, help_text=said), **super().get_fields()}


class FiguresSerializer(Shown):
    woken = serializers.IntegerField(help_text="runs that began, and wakes at which the gate was quiet")
    runs = serializers.IntegerField()
    quiet = serializers.IntegerField()
    failed = serializers.IntegerField(help_text="of these runs")
    spoke = serializers.IntegerField(help_text="notifications")
    incidents = serializers.IntegerField(help_text="that opened")
    deliveries = serializers.DictField(
        child=serializers.IntegerField(),
        help_text=f"what became of notifications so far: {', '.join(Delivery.Status.values)}",
    )
    requests = serializers.IntegerField(help_text="to models")
    tokens = serializers.IntegerField()
    usd = serializers.DecimalField(max_digits=24, decimal_places=10, help_text="US dollars spent on models")
    unpriced = serializers.IntegerField(help_text="requests without a known price")


class SlotSerializer(Shown):
    slot = serializers.IntegerField(
        help_text=f"0 to {SLOTS - 1}: the time span in equal parts; empty ones are left out"
    )
    runs = serializers.IntegerField()
    quiet = serializers.IntegerField()
    failed = serializers.IntegerField()
    spoke = serializers.IntegerField()
    incidents = serializers.IntegerField()


class AgentOvernightSerializer(FiguresSerializer):
    agent = serializers.CharField(help_text='"wakeful": alarms and other notifications of Wakeful itself')
    timeline = SlotSerializer(many=True)


@extend_schema_serializer(many=False)
class OvernightSerializer(Shown):
    start = serializers.DateTimeField()
    end = serializers.DateTimeField()
    total = FiguresSerializer()
    agents = AgentOvernightSerializer(many=True, help_text=f"the most important first, {MOST} at most")
    cut = serializers.ListField(
        child=serializers.CharField(), help_text="figures that are too low, as there were too many rows"
    )


class OvernightResource(Resource):
    """Activity of agents in a time span: how often they woke, were quiet, failed and notified, and what they spent."""

    required_permissions = {"list": "runs.view_run"}
    serializer_class = OvernightSerializer
    pagination_class = None

    @extend_schema(operation_id="overnight_get", parameters=[OvernightQuery], responses=OvernightSerializer)
    def list(self, request: Request) -> Response:
        """Figures of the night, by agent."""
        query = OvernightQuery.read(request)
        night = night_until(query.get("to", database_now()), settings.WAKEFUL_ZONE)
        if "from" in query:
            with naming("from"):
                night = Night(start=query["from"], end=night.end)
        return Response(_as_json(overnight(night)))


def _as_json(found: Overnight) -> dict[str, Any]:
    shown = found.agents[:MOST]
    return {
        "start": found.night.start,
        "end": found.night.end,
        "total": _figures(found.total),
        "agents": [{"agent": one.agent, **_figures(one), "timeline": _timeline(one)} for one in shown],
        "cut": list(found.cut),
    }


def _figures(one: Figures) -> Mapping[str, Any]:
    counts = {name: getattr(one, name) for name in COUNTS}
    return {**counts, "usd": f"{one.usd:f}", "deliveries": dict(sorted(one.deliveries.items()))}


def _timeline(one: Figures) -> list[dict[str, int]]:
    return [{"slot": slot, **vars(counts)} for slot, counts in sorted(one.slots.items())]
