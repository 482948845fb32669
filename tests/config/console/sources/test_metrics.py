"""A series is drawn with its episodes and runs; a detector is tried on it, and armed."""

from typing import Any

import pytest
from django.test import Client

from tests.support.console import page_of
from tests.support.runs import make_run
from tests.triggers.sources.metrics.test_samples import ABOVE, make_pushed, take
from triggers.models import Event, MetricDetector, MetricEpisode, MetricSeries, Source
from triggers.sources.metrics.arm import arm

pytestmark = pytest.mark.django_db


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    return str(answer.content.decode())


def trial_of(source: Source) -> str:
    return f"/admin/triggers/source/{source.pk}/detector/?detector=threshold"


def test_the_page_draws_the_series_its_bounds_and_episodes_and_the_runs_they_woke(admin: Client) -> None:
    source = make_pushed()
    arm(source, "threshold", ABOVE, by="test")
    take(source, [5, 11, 12, 5, 5, 13])
    run = make_run(event_id=Event.objects.order_by("seq")[0].pk, agent="fixer")

    shown = text_of(admin.get(page_of("triggers_source", source)))

    assert shown.count('class="series-episode') == 2 and 'class="series-episode series-open"' in shown
    assert 'class="series-value" d="M' in shown and 'class="series-upper" d="M' in shown
    assert shown.count('class="series-run ') == 1 and f"/admin/runs/run/{run.pk}/" in shown
    assert "1 episode is open." in shown and "<script" not in shown.partition("series-frame")[2].partition("</svg>")[0]


def test_a_source_without_samples_shows_what_to_do(admin: Client) -> None:
    shown = text_of(admin.get(page_of("triggers_source", make_pushed())))

    assert "No detector is armed" in shown and "Try a detector" in shown and "Disarm a detector" not in shown


def test_a_detector_is_tried_without_a_trace_and_armed_with_the_same_settings(admin: Client) -> None:
    source = make_pushed()
    take(source, [5, 11, 12, 5, 5, 13])
    form = {"days": "7", "series": MetricSeries.objects.get().pk, "hold": "0s", "release": "0s", "below": "", **ABOVE}

    tried = text_of(admin.post(trial_of(source), form))

    assert "It would have recorded 3 events of 2 episodes" in tried and not MetricDetector.objects.exists()
    assert admin.post(trial_of(source), {**form, "_arm": "Arm it"}).status_code == 302
    armed = MetricDetector.objects.get()
    assert armed.settings == {"hold": "0s", "release": "0s", "below": "", **ABOVE}
    assert not MetricEpisode.objects.exists()


def test_wrong_settings_stand_at_their_fields(admin: Client) -> None:
    source = make_pushed()
    form = {"days": "7", "above": "1", "below": "2", "margin": "x", "step": "0", "hold": "0s", "release": "0s"}

    assert "must be a number, not below 0" in text_of(admin.post(trial_of(source), {**form, "_arm": "Arm it"}))
    assert not MetricDetector.objects.exists()
