from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from triggers.sources.metrics.detector import Detector, Observation, Reading, State, register
from triggers.sources.metrics.two_windows import TwoWindowSettings, judge_windows
from triggers.sources.settings import setting


def _share(value: str) -> str:
    try:
        return "" if 0 < float(value) < 1 else "must be above 0 and below 1"
    except ValueError:
        return "must be a number"


@dataclass(frozen=True, kw_only=True)
class KolmogorovSmirnovSettings(TwoWindowSettings):
    limit: str = setting(
        "0.3",
        "Limit",
        "The distance above which the window is out: 0.3 if, below some value, its share of samples differs by 30 percentage points. "
        "Chance alone reaches 0.2 now and then with 100 samples in the window, and less with more.",
        check=_share,
    )


@register
class KolmogorovSmirnov(Detector[KolmogorovSmirnovSettings]):
    """Its limit is a distance and no probability of error: that holds for one comparison of independent samples, and these are compared
    again with each sample, in windows that overlap."""

    name = "kolmogorov_smirnov"
    label = "Distribution (Kolmogorov–Smirnov)"
    use = "values that are spread otherwise than before, of any series, without a choice of parts"
    help_text = (
        "Out when the newest samples are distributed otherwise than those before them: the largest distance between their two cumulative "
        "distributions. It divides the series into no parts, so it needs no choice of them and sees a shift of any series; beside PSI, "
        "which sees more of the tails. The episode closes when the reference consists of such samples."
    )
    settings_class = KolmogorovSmirnovSettings

    def judge(
        self, settings: KolmogorovSmirnovSettings, state: State, observation: Observation
    ) -> tuple[State, Reading | None]:
        return judge_windows(settings, state, observation, limit=float(settings.limit), distance=distance)


def distance(reference: Sequence[float], window: Sequence[float]) -> float:
    """The two-sample statistic of Kolmogorov and Smirnov: from 0 (distributed alike) to 1 (no value of one is among those of the other)."""
    before, after = sorted(reference), sorted(window)
    return max(
        abs(bisect_right(before, value) / len(before) - bisect_right(after, value) / len(after))
        for value in {*before, *after}
    )
