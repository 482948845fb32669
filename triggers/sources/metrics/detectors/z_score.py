import math
from dataclasses import dataclass

from triggers.sources.metrics.detector import (
    Detector,
    LearnedTerms,
    Observation,
    Reading,
    State,
    cut,
    positive,
    register,
    within,
)
from triggers.sources.settings import setting, whole_number

NORMAL = math.sqrt(math.pi / 2)  # standard deviation by mean absolute deviation, of a normal distribution


@dataclass(frozen=True, kw_only=True)
class ZScoreSettings(LearnedTerms):
    deviations: str = setting("4", "Deviations", "More standard deviations from the mean are out.", check=positive)
    memory: int = setting(
        100, "Memory", "About how many of the last samples form mean and deviation.", check=whole_number(10, 10_000)
    )


@register
class ZScore(Detector[ZScoreSettings]):
    name = "z_score"
    label = "Z-score"
    use = "series that swing around one mean, without a rhythm of days or weeks"
    help_text = "Out many standard deviations from the moving mean (EWMA). For series without a daily or weekly rhythm."
    settings_class = ZScoreSettings

    def judge(self, settings: ZScoreSettings, state: State, observation: Observation) -> tuple[State, Reading | None]:
        if observation.value is None:
            return state, None
        count, mean, spread = state.get("count", 0), state.get("mean", observation.value), state.get("spread", 0.0)
        reading: Reading | None = None
        if count >= min(settings.memory, 30):
            lower, upper = settings.bounds(mean, float(settings.deviations) * NORMAL * spread)
            reading = within(observation.value, mean, lower, upper)
        value = cut(observation.value, reading)
        share = max(1 / (count + 1), 2 / (settings.memory + 1))
        learned = {
            "count": min(count + 1, settings.memory),
            "mean": mean + share * (value - mean),
            "spread": spread + share * (abs(value - mean) - spread),
        }
        return learned, reading
