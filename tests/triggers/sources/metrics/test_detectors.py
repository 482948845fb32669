"""What every detector promises, and what each of them calls out."""

import json
import random
import statistics
from typing import Any

import pytest

from tests.triggers.sources.metrics.recorded import CLAIMS, observations
from triggers.sources.metrics.detector import Observation, detectors
from triggers.sources.metrics.detectors.quantile import _cut
from triggers.sources.metrics.episodes import HOUR, MOST_AN_HOUR, Change, Transition, see
from triggers.sources.metrics.replay import LOOKS_IN_GAPS, replay, with_absence
from triggers.sources.settings import InvalidSettings

SETTINGS: dict[str, dict[str, Any]] = {  # of detectors whose defaults alone are invalid
    "threshold": {"above": "300000", "margin": "20000", "step": "1000000"},
    "rate_of_change": {"rise": "15%", "over": "7d"},
    "missing": {"after": "10d"},
}


def run(name: str, values: list[float | None], *, every: float = 60, **settings: Any) -> list[Transition]:
    detector = detectors()[name]
    terms, state, found = detector.clean_settings(settings), dict[str, Any](), []
    for number, value in enumerate(values):
        seen = see(detector, terms, state, Observation(1e9 + every * number, value))
        state = json.loads(json.dumps(seen.state))
        found += [seen.transition] if seen.transition else []
    return found


def changes(found: list[Transition]) -> list[str]:
    return [one.change.value for one in found]


@pytest.mark.parametrize("name", detectors())
def test_every_detector_explains_itself_and_its_settings(name: str) -> None:
    detector = detectors()[name]

    assert detector.name == name and detector.label and detector.help_text.endswith(".")
    assert not [field for field in detector.fields if not field.label or not field.help_text]
    detector.clean_settings({field.name: field.default for field in detector.fields} | SETTINGS.get(name, {}))


@pytest.mark.parametrize("name", detectors())
def test_a_detector_is_a_function_of_state_and_sample_whose_state_is_small_json(name: str) -> None:
    detector = detectors()[name]
    settings = detector.clean_settings(SETTINGS.get(name, {}))
    series = observations(CLAIMS)[:-20] + [
        Observation(observation.at + 86_400 * 100, observation.value) for observation in observations(CLAIMS)[-20:]
    ]
    whole = replay(detector, settings, series)

    state, found = dict[str, Any](), []
    for observation, _ in whole.readings:
        before = json.dumps(state)
        seen = see(detector, settings, state, observation)
        assert json.dumps(state) == before  # it changes nothing that it is given
        state = json.loads(json.dumps(seen.state))
        assert len(json.dumps(state)) < 20_000
        found += [seen.transition] if seen.transition else []

    assert found == whole.transitions
    for first, second in zip(found, found[1:], strict=False):
        assert (first.change is Change.CLOSED) == (second.change is Change.OPENED)
    assert found == [] or found[0].change is Change.OPENED


def test_a_threshold_opens_when_it_was_held_and_closes_beyond_the_margin() -> None:
    terms: dict[str, Any] = {"above": "10", "margin": "2", "hold": "2m", "release": "1m"}

    found = run("threshold", [11, 9, 11, 11, 11, 9, 11, 8, 9, 8, 7], **terms)

    assert changes(found) == ["opened", "closed"]
    assert [(one.at - 1e9) / 60 for one in found] == [4, 10]
    assert (found[0].since - 1e9) / 60 == 2


def test_an_episode_worsens_by_steps_and_never_by_samples() -> None:
    found = run("threshold", [5, 11, 12, 21, 22, 15, 29, 41, 5], above="10", step="10")

    assert [(one.change.value, one.level) for one in found] == [
        ("opened", 1),
        ("worsened", 2),
        ("worsened", 4),
        ("closed", 4),
    ]


def test_a_flapping_series_opens_a_few_episodes_in_an_hour_and_shows_how_many_it_held_back() -> None:
    flapping: list[float | None] = [11.0 if number % 2 else 5.0 for number in range(130)]

    found = run("threshold", flapping, above="10")
    opened = [one for one in found if one.change is Change.OPENED]

    assert [len([one for one in opened if hour * HOUR <= one.at - 1e9 < (hour + 1) * HOUR]) for hour in (0, 1)] == [
        MOST_AN_HOUR,
        MOST_AN_HOUR,
    ]
    assert [one.quiet_until is not None for one in opened[:6]] == [False] * 5 + [True]
    assert opened[6].held_back == 30 - MOST_AN_HOUR


def test_missing_data_is_out_without_samples_and_back_with_one() -> None:
    found = run("missing", [1, None, None, None, None, None, 1, None], after="2m")

    assert [(one.change.value, one.level) for one in found] == [("opened", 1), ("worsened", 2), ("closed", 2)]


def test_a_seasonal_baseline_knows_the_hours_and_their_zone() -> None:
    week = 24 * 7
    values: list[float | None] = [100 + 50 * (8 <= number % 24 < 18) + number % 3 for number in range(6 * week)]
    values[5 * week + 3] = 150  # as by day, but at night

    found = run("seasonal", values, every=3600)

    assert [(one.change.value, (one.at - 1e9) / 3600) for one in found] == [
        ("opened", 5 * week + 3),
        ("closed", 5 * week + 4),
    ]


def test_a_change_of_level_is_one_episode_until_it_is_learned_and_a_spike_is_none() -> None:
    noise = random.Random(7)
    values: list[float | None] = [noise.gauss(100, 5) for _ in range(120)]
    values += [noise.gauss(110, 5) for _ in range(120)]
    values[60] = 300

    found = run("change_point", values)

    assert changes(found) == ["opened", "closed"]
    assert 120 < (found[0].at - 1e9) / 60 < 135


def test_a_lasting_deviation_becomes_normal_slowly() -> None:
    noise = random.Random(7)
    values: list[float | None] = [noise.gauss(100, 5) for _ in range(100)]
    values += [noise.gauss(200, 5) for _ in range(400)]

    found = run("z_score", values)

    assert changes(found)[0] == "opened" and changes(found)[-1] == "closed"
    assert found[-1].at - found[0].at > 10 * 60


@pytest.mark.parametrize("name", ["z_score", "change_point"])
@pytest.mark.parametrize("constant", [0.0, 0.3])
def test_a_series_that_was_constant_for_long_is_still_watched(name: str, constant: float) -> None:
    """What it has learned of the deviation decays towards the smallest number, by which nothing can be divided."""
    settings = {"z_score": {"memory": 10}}.get(name, {})
    values: list[float | None] = [*[1.0, 2.0] * 30, *[constant] * 4_000]
    values += [constant + 6e-17] * 10 + [constant + 1] * 800

    found = run(name, values, **settings)

    assert not [one for one in found if 4_060 <= (one.at - 1e9) / 60 < 4_070]  # rounding is no change
    assert changes(found)[-2:] == ["opened", "closed"] and found[-2].level == (1 if name == "change_point" else 10)


def test_the_smallest_step_is_no_error() -> None:
    assert run("threshold", [1.0], above="0", step="1e-320")[0].level == 10


def test_the_quantiles_are_those_of_the_library() -> None:
    noise = random.Random(7)
    for count in (30, 37, 200):
        values = sorted(noise.random() for _ in range(count))
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        assert [_cut(values, percent) for percent in range(1, 100)] == pytest.approx(cuts)


def test_a_series_of_bursts_has_no_more_looks_in_its_gaps_than_samples() -> None:
    bursts = [Observation(3_600.0 * hour + second, 1.0) for hour in range(3_000) for second in range(3)]
    assert len(list(with_absence(bursts))) <= len(bursts) + LOOKS_IN_GAPS


@pytest.mark.parametrize(
    ("name", "settings", "field"),
    [
        ("threshold", {}, "above"),
        ("threshold", {"above": "1", "below": "2"}, "below"),
        ("threshold", {"above": "nan"}, "above"),
        ("threshold", {"above": "1", "hold": "500d"}, "hold"),
        ("rate_of_change", {}, "rise"),
        ("rate_of_change", {"rise": "many%"}, "rise"),
        ("missing", {"after": "0s"}, "after"),
        ("seasonal", {"zone": "Mars"}, "zone"),
        ("z_score", {"deviations": "0"}, "deviations"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_name(name: str, settings: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidSettings) as refused:
        detectors()[name].clean_settings(settings)

    assert field in refused.value.errors
