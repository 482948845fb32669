"""Arm and disarm detectors, and try them on the stored series."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from runs.db.sql import database_now, fetch
from runs.models.audit import record
from triggers.exceptions import Invalid
from triggers.models import DetectorState, MetricDetector, MetricSample, MetricSeries, Source
from triggers.sources.metrics.detector import Detector, Observation, State, Terms, detectors
from triggers.sources.metrics.replay import Replayed, replay
from triggers.sources.metrics.samples import LOCK, end
from triggers.sources.settings import InvalidSettings

MOST_DETECTORS = 20  # that are armed on one source
MOST_DRAWN = 10_000  # samples of a series, the newest
MOST_TRIED = 50_000  # in a trial: 90 days of one each 10 s, as they are thinned
MOST_LEARNT = 50_000  # samples of all series that a new detector learns from
LEARNT_DAYS = 90.0


def cleaned(name: str, settings: Mapping[str, Any]) -> tuple[Detector[Any], Terms]:
    """A detector with valid settings. Invalid names each wrong field."""
    if name not in detectors():
        raise Invalid([f"name: {name!r} is unknown; use {', '.join(detectors())}"])
    try:
        return detectors()[name], detectors()[name].clean_settings(settings)
    except InvalidSettings as error:
        raise Invalid([f"settings.{field}: {problem}" for field, problem in error.errors.items()]) from None


@not_in_atomic_body
def arm(source: Source, name: str, settings: Mapping[str, Any], *, by: str) -> MetricDetector:
    """Arm a detector: from the next sample on it sees all series of the source, with the state that a replay of the
    stored samples gives. An episode that is open at the end of that replay opens with the next sample that is out.
    """
    cleaned(name, settings)
    with transaction.atomic():
        fetch(LOCK, [source.pk])
        if MetricDetector.objects.filter(source=source, disarmed_at=None).count() >= MOST_DETECTORS:
            raise Invalid([f"name: {MOST_DETECTORS} detectors are armed on this source; disarm one first"])
        armed = MetricDetector.objects.create(source=source, name=name, settings=settings)
        _teach(armed)
        record(by, "arm", armed, source=source.slug, name=name, settings=settings)
    return armed


@not_in_atomic_body
def disarm(armed: MetricDetector, *, by: str) -> None:
    """Disarm a detector; its open episodes end without an event."""
    with transaction.atomic():
        fetch(LOCK, [armed.source_id])
        if MetricDetector.objects.filter(pk=armed.pk, disarmed_at=None).exists():
            end(armed)
            record(by, "disarm", armed, name=armed.name)


def observations_of(series: MetricSeries, *, days: float, most: int = MOST_DRAWN) -> list[Observation]:
    """The stored samples of the last days, the newest of them, oldest first."""
    since = database_now() - timedelta(days=days)
    rows = MetricSample.objects.filter(series=series, at__gt=since).order_by("-at")[:most]
    return [Observation(at.timestamp(), value) for at, value in reversed(rows.values_list("at", "value"))]


def try_on(
    series: MetricSeries, name: str, settings: Mapping[str, Any], *, days: float, most: int = MOST_DRAWN
) -> Replayed:
    """Try the detector on stored samples. Raises Invalid; writes nothing."""
    detector, terms = cleaned(name, settings)
    return replay(detector, terms, observations_of(series, days=days, most=most))


def _teach(armed: MetricDetector) -> None:
    detector, terms = cleaned(armed.name, armed.settings)
    every = list(MetricSeries.objects.filter(source=armed.source_id))
    for series in every:
        learned: State = {}
        observations = observations_of(series, days=LEARNT_DAYS, most=MOST_LEARNT // len(every))
        for observation in observations:
            learned, _ = detector.judge(terms, learned, observation)
        if observations:
            seen_at = datetime.fromtimestamp(observations[-1].at, UTC)
            DetectorState.objects.create(detector=armed, series=series, state={"learned": learned}, seen_at=seen_at)
