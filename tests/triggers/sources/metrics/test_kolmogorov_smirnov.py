"""The detector of distributions by Kolmogorov and Smirnov: its distance is that of the definition and of scipy."""

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.sources.metrics.detector import Observation, State, detectors
from triggers.sources.metrics.detectors.kolmogorov_smirnov import distance
from triggers.sources.settings import InvalidSettings

NUMBERS = st.lists(st.integers(-5, 5).map(float), min_size=1, max_size=30)


def judged(values: list[float], **settings: object) -> list[tuple[int, bool, bool, int]]:
    """The samples with a reading: whether the detector is out and back there, and its level."""
    detector = detectors()["kolmogorov_smirnov"]
    terms, state, found = detector.clean_settings(settings), State(), []
    for number, value in enumerate(values):
        state, reading = detector.judge(terms, state, Observation(number, value))
        if reading:
            found.append((number, reading.is_out, reading.is_back, reading.level))
    assert json.loads(json.dumps(state)) == state
    assert len(state["values"]) <= 600
    return found


def outs(values: list[float], **settings: object) -> list[int]:
    return [number for number, is_out, _, _ in judged(values, **settings) if is_out]


def normal(count: int, mean: float = 0, spread: float = 1, seed: int = 7) -> list[float]:
    random = Random(seed)  # noqa: S311  (no secret)
    return [random.gauss(mean, spread) for _ in range(count)]


def rolls(count: int, sides: int, seed: int) -> list[float]:
    random = Random(seed)  # noqa: S311  (no secret)
    return [float(random.randrange(sides)) for _ in range(count)]


@given(NUMBERS, NUMBERS)
def test_the_distance_is_that_of_its_definition(reference: list[float], window: list[float]) -> None:
    def share(values: list[float], limit: float) -> float:
        return sum(value <= limit for value in values) / len(values)

    expected = max(abs(share(reference, limit / 2) - share(window, limit / 2)) for limit in range(-12, 12))

    assert distance(reference, window) == pytest.approx(expected)
    assert distance(window, reference) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("reference", "window", "statistic"),
    [
        (normal(300), normal(100, seed=8), 0.10666666666666667),
        (normal(300), normal(100, mean=0.5, seed=8), 0.30666666666666664),
        (normal(300), normal(100, spread=3, seed=8), 0.37),
        (rolls(300, 6, 1), rolls(100, 4, 2), 0.35),
        ([5.0] * 300, [5.0] * 100, 0.0),
        ([5.0] * 300, [6.0] * 100, 1.0),
    ],
)
def test_the_distance_is_that_of_scipy(reference: list[float], window: list[float], statistic: float) -> None:
    """As `ks_2samp` of scipy 1.17.1 computes it; it is not installed here."""
    assert distance(reference, window) == pytest.approx(statistic, abs=1e-12)


def test_chance_alone_is_no_drift() -> None:
    assert outs(normal(1200)) == []


@pytest.mark.parametrize(("mean", "spread"), [(1, 1), (0, 8)])
def test_a_shift_and_a_wider_spread_are_out_until_they_are_the_reference(mean: float, spread: float) -> None:
    found = outs(normal(400) + normal(600, mean, spread, seed=8))

    assert 400 < found[0] < 500  # within the window
    assert found[-1] < 800  # the reference has become the same


@pytest.mark.parametrize("other", [4.0, 6.0])
def test_a_constant_series_that_moves_either_way_is_out_and_worsens_once(other: float) -> None:
    found = judged([5.0] * 400 + [other] * 100, limit="0.295")
    levels = {number: level for number, _, _, level in found}

    assert [number for number, is_out, _, _ in found if is_out][0] == 429  # with 30 of 100 samples
    assert (levels[429], levels[460]) == (1, 2)


def test_between_out_and_back_an_episode_stays_unchanged() -> None:
    found = judged([5.0] * 400 + [6.0] * 31 + [5.0] * 200)
    state = {number: (is_out, is_back) for number, is_out, is_back, _ in found}

    assert state[430] == (True, False)
    assert [number for number, one in state.items() if one == (False, False) and number > 430]
    assert state[max(state)] == (False, True)


def test_what_is_missing_changes_nothing() -> None:
    detector = detectors()["kolmogorov_smirnov"]

    assert detector.judge(detector.clean_settings({}), {"values": [1.0]}, Observation(0, None)) == (
        {"values": [1.0]},
        None,
    )


@pytest.mark.parametrize("limit", ["0", "1", "-0.1", "nan", "much", ""])
def test_a_limit_is_a_distance(limit: str) -> None:
    with pytest.raises(InvalidSettings):
        detectors()["kolmogorov_smirnov"].clean_settings({"limit": limit})
