from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import lru_cache
from statistics import median
from zoneinfo import ZoneInfo, available_timezones

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
from triggers.sources.metrics.detectors.z_score import NORMAL
from triggers.sources.settings import setting

SEASONS = 8  # that are remembered of each slot
ENOUGH = 3  # of them before it judges
MEMORY = 500  # samples that form the deviation
DAY, WEEK, WEEKDAYS, YEAR = "day by hour", "week by hour", "week by day", "year by month"


def zone(value: str) -> str:
    return "" if value in available_timezones() else "must be the name of a zone, such as Europe/Vienna"


@dataclass(frozen=True, kw_only=True)
class SeasonalSettings(LearnedTerms):
    season: str = setting(
        WEEK,
        "Season",
        "The rhythm, and the slots that are compared with each other.",
        choices=(DAY, WEEK, WEEKDAYS, YEAR),
    )
    deviations: str = setting(
        "5", "Deviations", "More standard deviations from the slot's median are out.", check=positive
    )
    zone: str = setting("UTC", "Zone", "The time zone of the rhythm, such as Europe/Vienna.", check=zone)


@register
class Seasonal(Detector[SeasonalSettings]):
    name = "seasonal"
    label = "Seasonal baseline"
    use = "series with a rhythm of days, weeks or years, such as orders or visitors"
    help_text = "Out when a value differs from what is usual at this hour, weekday or month: the median of the last eight of them."
    settings_class = SeasonalSettings

    def judge(self, settings: SeasonalSettings, state: State, observation: Observation) -> tuple[State, Reading | None]:
        if observation.value is None:
            return state, None
        slot, season = place(observation.at, settings)
        past: dict[str, list[float]] = state.get("past", {})
        now = state.get("now", [slot, season, 0, 0.0])  # the slot that goes on: its samples, and their mean
        if [slot, season] != now[:2]:
            past = {**past, now[0]: [*past.get(now[0], []), now[3]][-SEASONS:]}
            now = [slot, season, 0, 0.0]
        known, count, spread = past.get(slot, []), state.get("count", 0), state.get("spread", 0.0)
        reading: Reading | None = None
        if len(known) >= ENOUGH:
            expected = median(known)
            if count >= 30:
                lower, upper = settings.bounds(expected, float(settings.deviations) * NORMAL * spread)
                reading = within(observation.value, expected, lower, upper)
            deviation = abs(cut(observation.value, reading) - expected)
            count = min(count + 1, MEMORY)
            spread += (deviation - spread) / count
        now = [slot, season, now[2] + 1, now[3] + (observation.value - now[3]) / (now[2] + 1)]
        return {"past": past, "now": now, "count": count, "spread": spread}, reading


def place(at: float, settings: SeasonalSettings) -> tuple[str, str]:
    """The slot of an instant in its season, and the name of the season."""
    local = datetime.fromtimestamp(at, UTC).astimezone(_zone(settings.zone))
    year, week, weekday = date.isocalendar(local)
    if settings.season == DAY:
        return str(local.hour), f"{local:%Y-%m-%d}"
    if settings.season == WEEK:
        return str(24 * (weekday - 1) + local.hour), f"{year}-{week}"
    if settings.season == WEEKDAYS:
        return str(weekday), f"{year}-{week}"
    return str(local.month), str(local.year)


@lru_cache(maxsize=64)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)
