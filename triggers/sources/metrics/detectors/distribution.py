import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

from triggers.sources.metrics.detector import Detector, Observation, Reading, State, positive, register
from triggers.sources.metrics.two_windows import TwoWindowSettings, judge_windows
from triggers.sources.settings import setting

PARTS = 5  # of the reference, with as many samples each; with more of them, chance alone would add up
UNSEEN = 0.5  # samples that a part counts beyond its own, so that an empty one is no infinite difference


@dataclass(frozen=True, kw_only=True)
class DistributionSettings(TwoWindowSettings):
    limit: str = setting(
        "0.25",
        "Limit",
        "The population stability index above which the window is out. Below 0.1 is usually no change, above 0.25 a large one.",
        check=positive,
    )


@register
class Distribution(Detector[DistributionSettings]):
    name = "distribution"
    label = "Distribution (PSI)"
    use = "values that are spread otherwise than before, even where their mean is the same"
    help_text = (
        "Out when the newest samples are distributed otherwise than those before them (population stability index), also where their "
        "mean is the same. The episode closes when the reference consists of such samples."
    )
    settings_class = DistributionSettings

    def judge(
        self, settings: DistributionSettings, state: State, observation: Observation
    ) -> tuple[State, Reading | None]:
        return judge_windows(settings, state, observation, limit=float(settings.limit), distance=stability_index)


def stability_index(reference: Sequence[float], window: Sequence[float]) -> float:
    """The population stability index of a window, over parts of the reference with as many samples each; 0: it is distributed alike."""
    cuts = quantiles(reference, n=PARTS, method="inclusive")
    # A value that fills a part alone gets one of its own, so that what is below it differs from it.
    edges = sorted({*cuts, *(math.nextafter(cut, -math.inf) for cut, times in Counter(cuts).items() if times > 1)})
    before, after = (Counter(bisect_left(edges, value) for value in values) for values in (reference, window))
    parts = range(len(edges) + 1)
    shares = [
        [(counted[part] + UNSEEN) / (len(values) + UNSEEN * len(parts)) for part in parts]
        for counted, values in ((before, reference), (after, window))
    ]
    index: float = sum((new - old) * math.log(new / old) for old, new in zip(*shares, strict=True))
    return index
