import math
from dataclasses import dataclass

from triggers.sources.metrics.detector import MOST_LEVEL, Detector, Observation, Reading, State, Terms, register


@dataclass(frozen=True, kw_only=True)
class DifferenceSettings(Terms):
    """Only when it becomes an episode."""


@register
class Difference(Detector[DifferenceSettings]):
    name = "difference"
    label = "Difference"
    use = "a count that should be zero, such as that of a drift or of unsent invoices"
    help_text = (
        "Out when a count is not zero; it worsens each time the count doubles. It watches every source of drift."
    )
    settings_class = DifferenceSettings

    def judge(
        self, settings: DifferenceSettings, state: State, observation: Observation
    ) -> tuple[State, Reading | None]:
        if observation.value is None:
            return state, None
        count = abs(observation.value)
        level = min(1 + int(math.log2(max(count, 1))), MOST_LEVEL) if count else 0
        return state, Reading(is_out=count > 0, is_back=count == 0, level=level, expected=0.0)
