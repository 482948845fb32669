"""Samples are stored, seen by the armed detectors, and become one event for each transition, all in one transaction."""

from datetime import datetime, timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests.support.api import Api
from tests.support.console import make_source
from triggers.models import (
    DetectorState,
    Event,
    MetricDetector,
    MetricEpisode,
    MetricSample,
    MetricSeries,
    PoisonMessage,
    Source,
)
from triggers.sources.metrics import samples
from triggers.sources.metrics.arm import arm, disarm, observations_of, try_on
from triggers.sources.metrics.samples import Metered, Sample, Taken, take_in

pytestmark = pytest.mark.django_db

START = timezone.now().replace(microsecond=0) - timedelta(days=1)
ABOVE = {"above": "10", "margin": "2", "step": "10"}


def at(minute: float) -> datetime:
    return START + timedelta(minutes=minute)


def make_pushed(slug: str = "load", **settings: Any) -> Source:
    return make_source(slug, kind="pushed", settings=settings)


def take(source: Source, values: list[float | None], *, first: float = 0, series: str = "") -> Taken:
    """A sample a minute; None: there is none."""
    found = [
        Sample(series=series, at=at(first + minute), value=value)
        for minute, value in enumerate(values)
        if value is not None
    ]
    with transaction.atomic():
        return take_in(Metered(source_id=source.pk, slug=source.slug), found)


def types() -> list[str]:
    return list(Event.objects.order_by("seq").values_list("type", flat=True))


def test_an_episode_is_one_event_for_each_transition() -> None:
    source = make_pushed()
    arm(source, "threshold", ABOVE, by="test")

    take(source, [5, 11, 12, 13, 25, 24, 11, 9, 8, 7], series="disk")

    assert types() == ["metric.opened", "metric.worsened", "metric.closed"]
    opened, worsened, closed = Event.objects.order_by("seq")
    episode = MetricEpisode.objects.get()
    assert opened.source == source and opened.subject == "disk" and opened.ce_source == "/sources/load/"
    assert (opened.time, worsened.time, closed.time) == (at(1), at(4), at(8))
    assert (
        (opened.data or {})["value"] == 11
        and (opened.data or {})["upper"] == 10
        and (opened.data or {})["since"] == at(1).isoformat()
    )
    assert {(event.data or {})["episode"] for event in (opened, worsened, closed)} == {str(episode.pk)}
    assert episode.event_ids == [str(opened.pk), str(worsened.pk), str(closed.pk)]
    assert (episode.opened_at, episode.closed_at, episode.level, episode.value) == (at(1), at(8), 2, 25)


def test_a_sample_that_comes_again_changes_nothing_and_a_late_one_is_seen_by_no_detector() -> None:
    source = make_pushed()
    arm(source, "threshold", ABOVE, by="test")
    assert take(source, [5, 11]).stored == 2

    again = take(source, [5, 999])
    late = take(source, [99], first=-5)

    assert (again.stored, again.known, late.stored, late.late) == (0, 2, 1, 1)
    assert types() == ["metric.opened"]
    assert MetricSample.objects.get(at=at(1)).value == 11
    assert MetricSeries.objects.get().last_at == at(1)


def test_a_crash_leaves_neither_samples_nor_events_nor_what_was_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_pushed()
    arm(source, "threshold", ABOVE, by="test")

    with pytest.raises(RuntimeError), transaction.atomic():
        take(source, [11])
        raise RuntimeError

    assert not MetricSample.objects.exists() and not Event.objects.exists() and not DetectorState.objects.exists()
    take(source, [11])
    assert types() == ["metric.opened"]


def test_missing_data_opens_by_the_clock_and_closes_with_the_next_sample() -> None:
    source = make_pushed()
    take(source, [1])
    arm(source, "missing", {"after": "10m"}, by="test")

    take(source, [])
    take(source, [])
    take(source, [1], first=(timezone.now() - START) / timedelta(minutes=1))

    assert types() == ["metric.opened", "metric.closed"]
    assert (Event.objects.order_by("seq")[0].data or {"value": 1})["value"] is None


def test_detectors_go_on_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_pushed()
    arm(source, "threshold", {**ABOVE, "hold": "1m"}, by="test")
    arm(source, "rate_of_change", {"rise": "20", "over": "2m"}, by="test")
    with monkeypatch.context() as ahead:
        ahead.setattr(samples, "database_now", lambda: timezone.now() + timedelta(days=400))
        take(source, [5, 5, 5, 11], first=399 * 24 * 60)

    take(source, [5, 5, 5, 11, 50])

    assert types() == ["metric.opened", "metric.opened"]
    assert {event.time for event in Event.objects.all()} == {at(4)}


def test_series_and_names_are_bounded_and_each_refusal_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST_SERIES", 2)
    source = Metered(source_id=make_pushed().pk, slug="load")
    given = [
        Sample(series="a", at=at(0), value=1),
        Sample(series="b", at=at(0), value=float("nan")),
        Sample(series="c", at=at(0), value=1),
        Sample(series="d", at=at(0), value=1),
        Sample(series="a\n", at=at(0), value=1),
        Sample(series="a", at=timezone.now() + timedelta(hours=1), value=1),
        Sample(series="a", at=timezone.now() - timedelta(days=31), value=1),
    ]

    taken = take_in(source, given)

    assert taken.stored == 2
    assert [one.index for one in taken.refused] == [1, 3, 4, 5, 6]
    assert "2 series already" in taken.refused[1].reason


def test_a_detector_is_armed_with_what_the_stored_series_teaches_and_disarmed_without_an_event() -> None:
    source = make_pushed()
    take(source, [10 + minute % 3 for minute in range(60)])
    tried = try_on(MetricSeries.objects.get(), "z_score", {}, days=2)

    armed = arm(source, "z_score", {}, by="test")
    take(source, [50], first=60)
    disarm(armed, by="test")
    take(source, [60], first=61)

    assert tried.transitions == [] and types() == ["metric.opened"]
    [episode] = MetricEpisode.objects.all()
    assert episode.is_disarmed and episode.closed_at and not DetectorState.objects.exists()


def test_a_new_detector_learns_from_more_samples_than_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triggers.sources.metrics.arm.observations_of", partial(observations_of, most=20))
    source = make_pushed()
    take(source, [float(minute % 5) for minute in range(60)])

    armed = arm(source, "z_score", {}, by="test")

    assert DetectorState.objects.get(detector=armed).state["learned"]["count"] == 60


def test_a_detector_that_fails_disarms_itself_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    source = make_pushed()
    MetricDetector.objects.create(source=source, name="of another version", settings={})
    broken = arm(source, "z_score", {}, by="test")
    arm(source, "threshold", ABOVE, by="test")
    take(source, [5])
    DetectorState.objects.filter(detector=broken).update(state={"learned": {"count": "five"}})

    assert take(source, [11], first=1).stored == 1

    assert types() == ["metric.opened"]
    errors = dict(MetricDetector.objects.exclude(disarmed_at=None).values_list("name", "error"))
    assert "another version" in errors["of another version"] and "TypeError" in errors["z_score"]
    assert PoisonMessage.objects.filter(source=source, reason__contains="TypeError").exists()


def test_samples_are_pushed_with_a_token_many_at_once_and_once_each() -> None:
    source = make_pushed()
    arm(source, "threshold", ABOVE, by="test")
    api = Api(["triggers.push_sample"])
    body = {"samples": [{"time": at(minute).isoformat(), "value": value} for minute, value in enumerate([1, 12, 1e20])]}

    first, again = api.post("sources/load/samples/", body), api.post("sources/load/samples/", body)

    assert first.status == 200
    assert (first.body["stored"], first.body["known"]) == (2, 0) and first.body["refused"][0]["index"] == 2
    assert (again.body["stored"], again.body["known"]) == (0, 2)
    assert types() == ["metric.opened"]
    assert api.post("sources/load/samples/", {"samples": []}).status == 400
    assert api.post("sources/other/samples/", body).status == 404
    other = Api(["triggers.view_source", "triggers.add_event"], name="other")  # a sender of events feeds no metric
    assert other.post("sources/load/samples/", body).status == 403
    Source.objects.update(enabled=False)
    assert api.post("sources/load/samples/", body).status == 404
