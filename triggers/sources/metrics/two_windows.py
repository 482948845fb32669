"""What detectors of a changed distribution share: the newest samples of a series, and those before them that they are compared with."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from triggers.sources.metrics.detector import BACK, MOST_LEVEL, Observation, Reading, State, Terms
from triggers.sources.settings import setting, whole_number


@dataclass(frozen=True, kw_only=True)
class TwoWindowSettings(Terms):
    reference: int = setting(
        300, "Reference", "How many samples before the window it is compared with.", check=whole_number(100, 400)
    )
    window: int = setting(100, "Window", "How many of the newest samples are compared.", check=whole_number(50, 200))


def judge_windows(
    settings: TwoWindowSettings,
    state: State,
    observation: Observation,
    *,
    limit: float,
    distance: Callable[[Sequence[float], Sequence[float]], float],
) -> tuple[State, Reading | None]:
    """The new state, and the reading by the distance between reference and window; None until both are full."""
    if observation.value is None:
        return state, None
    most = settings.reference + settings.window
    values: list[float] = [*state.get("values", []), observation.value][-most:]
    if len(values) < most:
        return {"values": values}, None
    found = distance(values[: settings.reference], values[settings.reference :])
    level = min(1 + int(math.log2(found / limit)), MOST_LEVEL) if found > limit else 0
    return {"values": values}, Reading(is_out=found > limit, is_back=found <= BACK * limit, level=level)
