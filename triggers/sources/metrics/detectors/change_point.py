from dataclasses import dataclass
from statistics import median

from triggers.sources.metrics.detector import Detector, LearnedTerms, Observation, Reading, State, positive, register
from triggers.sources.metrics.detectors.z_score import NORMAL
from triggers.sources.settings import setting, whole_number

SPREAD = 1.4826  # standard deviation by median absolute deviation, of a normal distribution
IDLE = 0.5  # deviations by which each value may differ without being counted
REFINED = 10  # baselines after which the level follows the values no slower
STEPS = 4.0  # the most that one value counts, so that a single one is no change of the level


@dataclass(frozen=True, kw_only=True)
class ChangePointSettings(LearnedTerms):
    baseline: int = setting(
        30,
        "Baseline",
        "How many samples form the level that later ones are compared with.",
        check=whole_number(10, 500),
    )
    evidence: str = setting(
        "8", "Evidence", "How many standard deviations must add up before the level has changed.", check=positive
    )


@register
class ChangePoint(Detector[ChangePointSettings]):
    name = "change_point"
    label = "Change point"
    use = "a level that shifts for good, even by little, such as after a release"
    help_text = (
        "Out when the level of a series has changed for good, even by little (two-sided CUSUM). The episode closes when the new level "
        "is learned."
    )
    settings_class = ChangePointSettings

    def judge(
        self, settings: ChangePointSettings, state: State, observation: Observation
    ) -> tuple[State, Reading | None]:
        """The state is the level, its spread, and what adds up; after a change also the values that form the new level."""
        if observation.value is None:
            return state, None
        if "learning" in state or "level" not in state:
            return self._learn(settings, state, observation.value)
        level, reach = state["level"], settings.reach(state["level"], state["spread"])
        step = min(max((observation.value - level) / reach, -STEPS), STEPS)
        lower, upper = settings.bounds(level, STEPS * reach)  # beyond, a value counts no more
        up = 0.0 if settings.direction == "below" else max(state["up"] + step - IDLE, 0.0)
        down = 0.0 if settings.direction == "above" else max(state["down"] - step - IDLE, 0.0)
        if max(up, down) <= float(settings.evidence):
            reading = Reading(is_out=False, is_back=True, expected=level, lower=lower, upper=upper)
            return {**_refined(settings, state, step * reach), "up": up, "down": down}, reading
        changed = {"level": level, "spread": state["spread"], "learning": [observation.value]}
        return changed, Reading(is_out=True, is_back=False, level=1, expected=level, lower=lower, upper=upper)

    def _learn(self, settings: ChangePointSettings, state: State, value: float) -> tuple[State, Reading | None]:
        values = [*state.get("learning", []), value]
        reading = None
        if "level" in state:
            reading = Reading(is_out=True, is_back=False, level=1, expected=state["level"])
        if len(values) < settings.baseline:
            return {**state, "learning": values}, reading
        level = median(values)
        spread = SPREAD * median(abs(one - level) for one in values)
        learned = {"level": level, "spread": spread, "count": len(values), "up": 0.0, "down": 0.0}
        return learned, Reading(is_out=False, is_back=True, expected=level) if reading else None


def _refined(settings: ChangePointSettings, state: State, distance: float) -> State:
    """A level that few values form is off by enough to add up, so the values that follow refine it, each less than the one before."""
    share = 1 / (state["count"] + 1)
    return {
        "level": state["level"] + share * distance,
        "spread": state["spread"] + share * (NORMAL * abs(distance) - state["spread"]),
        "count": min(state["count"] + 1, REFINED * settings.baseline),
    }
