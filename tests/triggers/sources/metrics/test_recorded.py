"""Detectors on recorded series: which episodes that others have named they find, how late, and how often they are wrong. The table
of docs/metrics.md is what this computes."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.triggers.sources.metrics.recorded import (
    ANOMALY,
    CARBON_DIOXIDE,
    CLAIMS,
    NILE,
    TEMPERATURE,
    Labelled,
    Score,
    observations,
    score,
)
from triggers.sources.metrics.detector import detectors
from triggers.sources.metrics.replay import replay

DOCS = Path(__file__).parents[4] / "docs" / "metrics.md"
TRIED: list[tuple[str, Labelled, str, dict[str, Any], str]] = [
    ("Nile, annual", NILE, "change_point", {"baseline": 20}, "y"),
    ("claims, weekly", CLAIMS, "rate_of_change", {"rise": "15%", "over": "7d"}, "w"),
    ("claims, weekly", CLAIMS, "z_score", {"deviations": "4", "memory": 52, "direction": "above"}, "w"),
    ("claims, weekly", CLAIMS, "quantile", {"direction": "above"}, "w"),
    ("El Niño, anomaly", ANOMALY, "threshold", {"above": "0.49", "hold": "119d"}, "m"),
    (
        "El Niño, temperature",
        TEMPERATURE,
        "seasonal",
        {"season": "year by month", "direction": "above", "deviations": "1.5", "hold": "60d"},
        "m",
    ),
    ("carbon dioxide, weekly", CARBON_DIOXIDE, "missing", {"after": "28d"}, "w"),
    ("carbon dioxide, weekly", CARBON_DIOXIDE, "missing", {"after": "14d"}, "w"),
]
UNITS = {"y": (365, "years"), "w": (7, "weeks"), "m": (30, "months")}


def row(name: str, detector: str, settings: dict[str, Any], unit: str, found: Score) -> str:
    days, word = UNITS[unit]
    words = ", ".join(f"{key} {value}" for key, value in settings.items())
    late = f"{found.delay.days // days} {word}"
    return f"| {name} | `{detector}`: {words} | {found.found} of {found.of} | {found.false} | {late} |"


@pytest.mark.parametrize(("name", "series", "detector", "settings", "unit"), TRIED)
def test_the_table_of_the_docs_is_what_the_detectors_find(
    name: str, series: Labelled, detector: str, settings: dict[str, Any], unit: str
) -> None:
    computed = row(name, detector, settings, unit, score(series, detector, **settings))

    assert computed in DOCS.read_text().splitlines()


def test_a_gap_is_one_event_for_each_transition() -> None:
    """Of those of 1964 and 1984: the level is reported when the time without a sample has doubled, and never twice."""
    missing = detectors()["missing"]
    found = replay(missing, missing.clean_settings({"after": "28d"}), observations(CARBON_DIOXIDE)).transitions

    assert [(datetime.fromtimestamp(one.at, UTC).year, one.change, one.level) for one in found[-6:]] == [
        (1964, "opened", 1), (1964, "worsened", 2), (1964, "worsened", 3), (1964, "closed", 3),
        (1984, "opened", 1), (1984, "closed", 1),
    ]  # fmt: skip
    assert [one.value is None for one in found[-6:]] == [True, True, True, False, True, False]
