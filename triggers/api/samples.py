"""`POST /api/v1/sources/<slug>/samples/`: samples that programs push."""

from datetime import UTC, datetime
from typing import Any

from django.db import transaction
from rest_framework import serializers
from rest_framework.exceptions import NotFound

from runs.api.body import Body
from runs.api.shown import Shown
from triggers.api.fields import InstantInUtc
from triggers.models import Source
from triggers.sources.http.answers import require_room
from triggers.sources.metrics.push import Pushed
from triggers.sources.metrics.samples import LONGEST_NAME, Metered, Sample, Taken, take_in

MOST = 1_000  # samples of a request


class SampleSerializer(Shown):
    series = serializers.CharField(
        default="", allow_blank=True, max_length=LONGEST_NAME, help_text="may be left out if there is one only"
    )
    time = InstantInUtc(required=False, help_text="in whole seconds; now if it is left out")
    value = serializers.FloatField()


class SamplesBody(Body):
    is_large = True
    samples = serializers.ListField(child=SampleSerializer(), min_length=1, max_length=MOST)


class RefusedSampleSerializer(Shown):
    index = serializers.IntegerField(help_text="in the list that was sent")
    reason = serializers.CharField()


class SamplesTakenSerializer(Shown):
    """`known`: samples of a series and second that are stored already; `late`: stored, but older than the series' last one."""

    stored = serializers.IntegerField()
    known = serializers.IntegerField()
    late = serializers.IntegerField()
    refused = RefusedSampleSerializer(many=True)


def push(source: Source, samples: list[dict[str, Any]]) -> Taken:
    """Store the samples of a request and record the events that they cause, all or none."""
    if source.kind != Pushed.name or not source.enabled:
        raise NotFound("No enabled source with this name takes pushed samples.")
    require_room(source.pk)
    now = datetime.now(UTC)
    read = [Sample(series=one["series"], at=one.get("time", now), value=one["value"]) for one in samples]
    with transaction.atomic():
        return take_in(Metered(source_id=source.pk, slug=source.slug), read)
