from collections.abc import Sequence
from dataclasses import dataclass

from triggers.sources.metrics.detector import (
    Detector,
    LearnedTerms,
    Observation,
    Reading,
    State,
    not_negative,
    register,
    within,
)
from triggers.sources.settings import setting, whole_number


@dataclass(frozen=True, kw_only=True)
class QuantileSettings(LearnedTerms):
    percent: int = setting(
        99,
        "Quantile",
        "In percent: 99 stands for the value that 99% of the last ones do not exceed.",
        check=whole_number(75, 99),
    )
    slack: str = setting(
        "50",
        "Slack",
        "How far beyond it a value may be, in percent of its distance from the median.",
        check=not_negative,
    )
    window: int = setting(200, "Window", "How many of the last samples it knows.", check=whole_number(30, 500))


@register
class Quantile(Detector[QuantileSettings]):
    name = "quantile"
    label = "Quantile"
    use = "skewed series without a rhythm, such as latencies"
    help_text = "Out beyond a high or low quantile of the last samples. It assumes no distribution; for skewed series such as latencies."
    settings_class = QuantileSettings

    def judge(self, settings: QuantileSettings, state: State, observation: Observation) -> tuple[State, Reading | None]:
        if observation.value is None:
            return state, None
        values: list[float] = state.get("values", [])
        learned = {"values": [*values, observation.value][-settings.window :]}
        if len(values) < min(settings.window, 30):
            return learned, None
        ordered, slack = sorted(values), 1 + float(settings.slack) / 100
        middle = _cut(ordered, 50)
        reach = slack * max(_cut(ordered, settings.percent) - middle, 0)
        below = slack * max(middle - _cut(ordered, 100 - settings.percent), 0)
        (lower, _), (_, upper) = settings.bounds(middle, below), settings.bounds(middle, reach)
        return learned, _reading(observation.value, middle, lower, upper)


def _cut(ordered: Sequence[float], percent: int) -> float:
    """`statistics.quantiles` (inclusive) makes all cuts of a hundred each time."""
    place, rest = divmod((len(ordered) - 1) * percent, 100)
    return (ordered[place] * (100 - rest) + ordered[min(place + 1, len(ordered) - 1)] * rest) / 100


def _reading(value: float, middle: float, lower: float | None, upper: float | None) -> Reading:
    """The reading by the bound on the value's own side, because the two bounds differ in their distance from the
    median.
    """
    side = within(value, middle, None, upper) if value >= middle else within(value, middle, lower, None)
    return Reading(
        is_out=side.is_out, is_back=side.is_back, level=side.level, expected=middle, lower=lower, upper=upper
    )
