from dataclasses import dataclass

from agents.kernel.durations import parse_duration
from triggers.sources.metrics.detector import (
    Detector,
    Observation,
    Reading,
    State,
    Terms,
    duration,
    not_negative,
    register,
    within,
)
from triggers.sources.settings import InvalidSettings, setting

POINTS = 60  # that are remembered of the time span


def change(value: str) -> str:
    return (
        "" if value == "" or not not_negative(value.removesuffix("%")) else "must be a number, or percent such as 20%"
    )


@dataclass(frozen=True, kw_only=True)
class RateOfChangeSettings(Terms):
    over: str = setting("1h", "Over", "The span over which the change counts, such as 1h.", check=duration)
    rise: str = setting(
        "", "Rise", "A rise by more is out: a number, or percent such as 20%. Empty: no rise is.", check=change
    )
    fall: str = setting(
        "", "Fall", "A fall by more is out: a number, or percent such as 20%. Empty: no fall is.", check=change
    )

    def __post_init__(self) -> None:
        if not parse_duration(self.over):
            raise InvalidSettings({"over": "must be longer than 0s"})
        if not self.rise and not self.fall:
            raise InvalidSettings({"rise": "give a rise, a fall, or both"})


@register
class RateOfChange(Detector[RateOfChangeSettings]):
    name = "rate_of_change"
    label = "Rate of change"
    use = "a jump or a fall within some time, such as 20% in an hour"
    help_text = "Out when a value differs too much from that of some time before, such as 20% within an hour."
    settings_class = RateOfChangeSettings

    def judge(
        self, settings: RateOfChangeSettings, state: State, observation: Observation
    ) -> tuple[State, Reading | None]:
        if observation.value is None:
            return state, None
        span = parse_duration(settings.over).total_seconds()
        points: list[list[float]] = [point for point in state.get("points", []) if point[0] <= observation.at]
        if not points or observation.at - points[-1][0] >= span / POINTS:
            points = [*points, [observation.at, observation.value]]
        old = [point for point in points if point[0] <= observation.at - span]
        points = points[max(len(old) - 1, 0) :]  # the last one before the span is what a value is compared with
        if not old:
            return {"points": points}, None
        expected = old[-1][1]
        lower = expected - _amount(settings.fall, expected) if settings.fall else None
        upper = expected + _amount(settings.rise, expected) if settings.rise else None
        return {"points": points}, within(observation.value, expected, lower, upper)


def _amount(change: str, of: float) -> float:
    return abs(of) * float(change[:-1]) / 100 if change.endswith("%") else float(change)
