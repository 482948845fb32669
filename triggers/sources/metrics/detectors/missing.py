import math
from dataclasses import dataclass

from agents.kernel.durations import parse_duration
from triggers.sources.metrics.detector import (
    MOST_LEVEL,
    Detector,
    Observation,
    Reading,
    State,
    Terms,
    duration,
    register,
)
from triggers.sources.settings import InvalidSettings, setting


@dataclass(frozen=True, kw_only=True)
class MissingSettings(Terms):
    after: str = setting("10m", "After", "How long a series may have no sample, such as 10m.", check=duration)

    def __post_init__(self) -> None:
        if not parse_duration(self.after):
            raise InvalidSettings({"after": "must be longer than 0s"})


@register
class Missing(Detector[MissingSettings]):
    name = "missing"
    label = "Missing data"
    use = "a series that stops, such as when a probe or its server is down"
    help_text = (
        "Out when a series has had no sample for some time, back with the next one; it worsens as that time doubles."
    )
    settings_class = MissingSettings
    sees_absence = True

    def judge(self, settings: MissingSettings, state: State, observation: Observation) -> tuple[State, Reading | None]:
        if observation.value is not None:
            return {"last": observation.at}, Reading(is_out=False, is_back=True)
        if "last" not in state:
            return state, None
        times = (observation.at - state["last"]) / parse_duration(settings.after).total_seconds()
        if times < 1:
            return state, Reading(is_out=False, is_back=False)
        return state, Reading(is_out=True, is_back=False, level=min(1 + int(math.log2(times)), MOST_LEVEL))
