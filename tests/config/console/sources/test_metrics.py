"""A series is drawn with its episodes and runs; a detector is tried on it, and armed."""

from typing import Any

import pytest
from django.test import Client
from django.utils.html import escape

from tests.support.console import page_of
from tests.support.runs import make_run
from tests.triggers.sources.metrics.test_samples import ABOVE, make_pushed, take
from triggers.models import Event, MetricDetector, MetricEpisode, MetricSeries, Source
from triggers.sources.metrics.arm import arm
from triggers.sources.metrics.detector import detectors

pytestmark = pytest.mark.django_db


def text_of(answer: Any) -> str:
    assert answer.status_code == 200
    return str(answer.content.decode())


def trial_of(source: Source) -> str:
    return f"/admin/triggers/source/{source.pk}/detector/"


def filled(detector: str = "threshold", **settings: str) -> dict[str, Any]:
    form = {f"{detector}__{name}": value for name, value in {"hold": "0s", "release": "0s", **settings}.items()}
    return {
        "detector": detector,
        "days": "7",
        "series": MetricSeries.objects.values_list("pk", flat=True).first() or "",
        **form,
    }


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


def test_one_page_has_every_detector_with_what_it_is_for_and_the_settings_of_each(admin: Client) -> None:
    answer = admin.get(trial_of(make_pushed()))
    shown = text_of(answer)

    for name, one in detectors().items():
        assert f"<b>{one.label}</b>, for {escape(one.use)}" in shown
        assert all(f'name="{name}__{field.name}"' in shown for field in one.fields)
    assert answer.context["choice"].value() == "threshold"
    assert 'action="#result"' in shown and 'id="result"' in shown


def test_a_detector_is_tried_without_a_trace_and_armed_with_the_same_settings(admin: Client) -> None:
    source = make_pushed()
    take(source, [5, 11, 12, 5, 5, 13])
    form = filled(below="", **ABOVE)

    tried = text_of(admin.post(trial_of(source), form))

    assert (
        "It would have recorded 3 events: 2 when an episode opens, 1 when one closes. The last episode is open."
        in tried
    )
    assert "It would have judged 6 samples." in tried and not MetricDetector.objects.exists()
    assert admin.post(trial_of(source), {**form, "_arm": "Arm it"}).status_code == 302
    armed = MetricDetector.objects.get()
    assert armed.settings == {"hold": "0s", "release": "0s", "below": "", **ABOVE}
    assert not MetricEpisode.objects.exists()


def test_a_trial_that_finds_nothing_says_so_and_why(admin: Client) -> None:
    source = make_pushed()
    take(source, [5, 6, 5, 6])

    quiet = text_of(admin.post(trial_of(source), filled(above="100", below="", margin="0", step="0")))
    learning = text_of(
        admin.post(trial_of(source), filled("z_score", deviations="4", memory="100", direction="both", at_least="0"))
    )

    assert "It would have recorded no event: nothing was out. It would have judged 4 samples." in quiet
    assert "It would have recorded no event: it was still learning after 4 samples." in learning


def test_wrong_settings_stand_at_their_fields_and_those_of_other_detectors_are_not_read(admin: Client) -> None:
    source = make_pushed()
    form = filled(above="1", below="2", margin="x", step="0") | {"quantile__window": "many"}

    refused = admin.post(trial_of(source), {**form, "_arm": "Arm it"})

    assert "must be a number, not below 0" in text_of(refused)
    assert list(refused.context["form"].errors) == ["threshold__margin"]
    assert not MetricDetector.objects.exists()
