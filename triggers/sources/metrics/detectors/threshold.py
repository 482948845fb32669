from dataclasses import dataclass

from triggers.sources.metrics.detector import (
    MOST_LEVEL,
    Detector,
    Observation,
    Reading,
    State,
    Terms,
    not_negative,
    number,
    register,
)
from triggers.sources.settings import InvalidSettings, setting


@dataclass(frozen=True, kw_only=True)
class ThresholdSettings(Terms):
    above: str = setting("", "Above", "Values above this number are out. Empty: no upper limit.", check=number)
    below: str = setting("", "Below", "Values below this number are out. Empty: no lower limit.", check=number)
    margin: str = setting(
        "0",
        "Margin",
        "Hysteresis: how far a value must be on the good side of the limit to be back.",
        check=not_negative,
    )
    step: str = setting(
        "0",
        "Step",
        "The episode worsens with each such step beyond the limit. 0: it never worsens.",
        check=not_negative,
    )

    def __post_init__(self) -> None:
        if not self.above and not self.below:
            raise InvalidSettings({"above": "give a limit above, below, or both"})
        if (
            self.above
            and self.below
            and float(self.below) + float(self.margin) >= float(self.above) - float(self.margin)
        ):
            raise InvalidSettings({"below": "no value would be back: leave room between the limits and their margins"})


@register
class Threshold(Detector[ThresholdSettings]):
    name = "threshold"
    label = "Threshold"
    use = "a limit that you know, such as a disk above 90%"
    help_text = "Out beyond a fixed limit, back on its other side by a margin."
    settings_class = ThresholdSettings

    def judge(
        self, settings: ThresholdSettings, state: State, observation: Observation
    ) -> tuple[State, Reading | None]:
        if observation.value is None:
            return state, None
        upper = float(settings.above) if settings.above else None
        lower = float(settings.below) if settings.below else None
        over = max(
            observation.value - upper if upper is not None else float("-inf"),
            lower - observation.value if lower is not None else float("-inf"),
        )
        step = float(settings.step)
        level = min(1 + int(min(over / step, MOST_LEVEL)) if step else 1, MOST_LEVEL) if over > 0 else 0
        return state, Reading(
            is_out=over > 0, is_back=over <= -float(settings.margin), level=level, lower=lower, upper=upper
        )
