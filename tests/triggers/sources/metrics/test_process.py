"""What `manage.py sources` records of a metric source: whatever fails on the way, the events are those that a replay of the stored
series finds."""

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from tests.support.examples import some_cases
from tests.support.list_server import ListServer, Page, serving_lists
from tests.support.scripts import processes, run_until
from tests.triggers.sources.metrics.test_samples import make_pushed
from triggers import accept
from triggers.models import Event, MetricSample, MetricSeries, PoisonMessage, Reading, Source
from triggers.sources.metrics.arm import arm, try_on
from triggers.sources.metrics.samples import Metered, Sample, take_in
from triggers.sources.process import reader_thread

pytestmark = pytest.mark.django_db


@pytest.fixture
def site(settings: Any) -> Iterator[ListServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    with serving_lists() as site:
        yield site


def test_a_source_is_read_and_its_error_shown_while_its_detectors_go_on(
    site: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_thread, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(reader_thread, "LONGEST_PAUSE", 0.01)
    monkeypatch.setattr("triggers.sources.metrics.metric.EverySettings.pause", timedelta(seconds=1.1))
    source = Source.objects.create(
        slug="load", kind="json_number", settings={"url": site.url("/load"), "value_path": "n", "every": "10s"}
    )
    arm(source, "threshold", {"above": "10"}, by="test")
    arm(source, "missing", {"after": "1s"}, by="test")
    site.pages["/load"] = Page(json.dumps({"n": 11}).encode())

    with processes() as [process]:
        run_until(process, lambda: Event.objects.filter(type="metric.opened").exists())
        site.pages["/load"] = Page(status=500)
        run_until(process, lambda: Event.objects.filter(data__detector="missing").exists())
        run_until(process, lambda: Reading.objects.get(source=source).error)
        error = Reading.objects.get(source=source).error
        site.pages["/load"] = Page(json.dumps({"n": 5}).encode())
        run_until(process, lambda: Event.objects.filter(type="metric.closed", data__detector="threshold").exists())

    assert (error, Reading.objects.get(source=source).error) == ("The server answers 500 Internal Server Error.", "")
    found = list(Event.objects.order_by("seq").values_list("data__detector", "type"))
    assert found.count(("threshold", "metric.opened")) == found.count(("threshold", "metric.closed")) == 1
    assert not PoisonMessage.objects.exists()


@pytest.mark.parametrize("seed", some_cases(range(3)))
def test_after_any_number_of_crashes_the_events_are_those_of_a_replay(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, source = random.Random(seed), make_pushed()
    settings = {"above": "10", "margin": "2", "step": "5", "hold": "2m"}
    arm(source, "threshold", settings, by="test")
    start = timezone.now().replace(microsecond=0) - timedelta(hours=6)
    given = [Sample(at=start + timedelta(minutes=minute), value=chance.uniform(0, 22)) for minute in range(300)]
    real = accept.accept
    crashes = 0

    def dies(events: Any) -> Any:
        accepted = real(events)
        if chance.random() < 0.3:
            raise KeyboardInterrupt  # as a killed process, it leaves what is not committed
        return accepted

    monkeypatch.setattr("triggers.sources.metrics.samples.accept", dies)
    while given:
        some = given[: chance.randint(1, 20)]
        try:
            with transaction.atomic():
                take_in(Metered(source_id=source.pk, slug=source.slug), some)
        except KeyboardInterrupt:
            crashes += 1
        else:
            given = given[chance.randint(1, len(some)) :]  # the rest is sent again

    replayed = try_on(MetricSeries.objects.get(), "threshold", settings, days=1).transitions
    recorded = Event.objects.order_by("seq").values_list("type", "time", "data__level")
    assert [(type.split(".")[1], time.timestamp(), level) for type, time, level in recorded if time] == [
        (one.change.value, one.at, one.level) for one in replayed
    ]
    assert crashes and len(replayed) > 10 and MetricSample.objects.count() == 300
