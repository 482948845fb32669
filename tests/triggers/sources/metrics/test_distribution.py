"""The detector of distributions: out when new samples are distributed otherwise, quiet while chance alone moves them."""

import json
from random import Random

import pytest

from triggers.sources.metrics.detector import Observation, State, detectors
from triggers.sources.metrics.detectors.distribution import stability_index


def outs(values: list[float], **settings: object) -> list[int]:
    """The samples at which the detector is out."""
    detector = detectors()["distribution"]
    terms, state, found = detector.clean_settings(settings), State(), []
    for number, value in enumerate(values):
        state, reading = detector.judge(terms, state, Observation(number, value))
        if reading and reading.is_out:
            found.append(number)
    assert json.loads(json.dumps(state)) == state
    return found


def normal(count: int, mean: float = 0, spread: float = 1, seed: int = 7) -> list[float]:
    random = Random(seed)  # noqa: S311  (no secret)
    return [random.gauss(mean, spread) for _ in range(count)]


def test_chance_alone_is_no_drift() -> None:
    assert outs(normal(700)) == []


def test_a_wider_spread_with_the_same_mean_is_out_until_it_is_the_reference() -> None:
    values = normal(400) + normal(500, spread=3, seed=8)

    found = outs(values)

    assert 400 < found[0] < 500  # within the window
    assert found[-1] < 800  # the reference has become the same


@pytest.mark.parametrize("other", [4.0, 6.0])
def test_a_constant_series_that_moves_either_way_is_out(other: float) -> None:
    assert 400 <= outs([5.0] * 400 + [other] * 100)[0] < 450


def test_the_index_is_that_of_its_definition() -> None:
    reference = [float(number % 5) for number in range(500)]

    assert stability_index(reference, reference[:100]) == pytest.approx(0, abs=1e-3)
    # Half of the fifth part moves to the first: (0.3 - 0.2) ln(0.3/0.2) + (0.1 - 0.2) ln(0.1/0.2)
    window = [*reference[:100]]
    for place in range(4, 54, 5):
        window[place] = 0.0
    assert stability_index(reference, window) == pytest.approx(0.1099, abs=0.01)


def test_its_state_is_bounded_and_what_is_missing_changes_nothing() -> None:
    detector = detectors()["distribution"]
    terms, state = detector.clean_settings({"reference": 400, "window": 200}), State()
    for value in normal(700):
        state, _ = detector.judge(terms, state, Observation(0, value))

    assert len(state["values"]) == 600
    assert detector.judge(terms, state, Observation(0, None)) == (state, None)
