"""Detectors: they find unusual values in a series. A detector is a pure function of its state and an observation, which returns
a new state and a reading. Its state is JSON and is bounded, so that it is stored in the commit that stores the sample,
and a replay over a stored series shows what would have happened.

The detectors are written here and not taken from a library. Those that were looked at keep their state in objects of numpy (river,
statsmodels), or look at a whole series at once (ruptures, adtk); none has a state that can be written with each sample, and each
brings 100 MB of dependencies for less than 100 lines of arithmetic.
"""

import math
import pkgutil
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar

from agents.kernel.durations import parse_duration
from triggers.sources.settings import Field, clean, fields_of, setting

S = TypeVar("S", bound="Terms")
K = TypeVar("K", bound="type[Detector[Any]]")
State = dict[str, Any]

MOST = 1e15  # the largest number of a sample; its square is still far from the end of floating point
MOST_LEVEL = 10
LONGEST = timedelta(days=400)
ROUNDING = 1e-9  # part of a value that is no distance, as floating point is not exact
LEAST = 1e-12  # distance of values around zero
BACK = 0.75  # part of the allowed distance within which a value is back, so that one on the edge does not flap
_detectors: dict[str, "Detector[Any]"] = {}


def number(value: str) -> str:
    return "" if value == "" or _is_number(value) else "must be a number"


def positive(value: str) -> str:
    return "" if _is_number(value) and float(value) > 0 else "must be a number above 0"


def not_negative(value: str) -> str:
    return "" if _is_number(value) and float(value) >= 0 else "must be a number, not below 0"


def duration(value: str) -> str:
    try:
        return "" if timedelta() <= parse_duration(value) <= LONGEST else "must be from 0s to 400d"
    except ValueError as error:
        return f"is wrong: {error}"


def _is_number(value: str) -> bool:
    try:
        return math.isfinite(float(value)) and abs(float(value)) <= MOST
    except ValueError:
        return False


@dataclass(frozen=True, kw_only=True)
class Terms:
    """When what a detector finds becomes an episode."""

    hold: str = setting(
        "0s", "For", "How long a series must be out before an episode opens, such as 5m. 0s: at once.", check=duration
    )
    release: str = setting(
        "0s", "Back for", "How long it must be back before the episode closes. 0s: at once.", check=duration
    )

    @property
    def hold_seconds(self) -> float:
        return float(parse_duration(self.hold).total_seconds())

    @property
    def release_seconds(self) -> float:
        return float(parse_duration(self.release).total_seconds())


@dataclass(frozen=True, kw_only=True)
class LearnedTerms(Terms):
    """The terms of a detector that learns what is normal."""

    direction: str = setting("both", "Direction", "Which values can be out.", choices=("both", "above", "below"))
    at_least: str = setting(
        "0",
        "At least",
        "A smaller distance from the expected value is never out; for series that hardly change.",
        check=not_negative,
    )

    def reach(self, expected: float, learned: float) -> float:
        """The distance at which a value is out. Never zero, or the state of a constant series could never change."""
        return max(learned, float(self.at_least), ROUNDING * abs(expected), LEAST)

    def bounds(self, expected: float, learned: float) -> tuple[float | None, float | None]:
        reach = self.reach(expected, learned)
        return (
            None if self.direction == "above" else expected - reach,
            None if self.direction == "below" else expected + reach,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """A sample, or no sample where there could be one (`value` is None). `at` is in seconds since 1970."""

    at: float
    value: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """The reading of a detector for an observation. Between out and back an episode stays unchanged."""

    is_out: bool
    is_back: bool
    level: int = 0  # by how many steps it is out
    expected: float | None = None
    lower: float | None = None
    upper: float | None = None


class Detector(ABC, Generic[S]):
    """A detector: its settings, and its reading of an observation."""

    name: ClassVar[str]
    label: ClassVar[str]
    use: ClassVar[str]  # what it is for, to follow “for”
    help_text: ClassVar[str]
    settings_class: type[S]
    sees_absence: ClassVar[bool] = False  # is also shown observations without a value

    @property
    def fields(self) -> tuple[Field, ...]:
        return fields_of(self.settings_class)

    def clean_settings(self, settings: Mapping[str, object]) -> S:
        """Raises InvalidSettings."""
        return clean(self.settings_class, settings)

    @abstractmethod
    def judge(self, settings: S, state: State, observation: Observation) -> tuple[State, Reading | None]:
        """The new state, and the reading; None until the detector has learned enough. The state is empty at first."""


def within(value: float, expected: float, lower: float | None, upper: float | None) -> Reading:
    """The reading of a value with learned bounds: its level grows with each doubling of the distance."""
    reach = max((abs(bound - expected) for bound in (lower, upper) if bound is not None), default=0.0)
    is_out = (upper is not None and value > upper) or (lower is not None and value < lower)
    distance = abs(value - expected)
    times = distance / reach if reach > 0 else math.inf
    level = (1 + int(math.log2(times)) if times < 2**MOST_LEVEL else MOST_LEVEL) if is_out else 0
    is_near = (upper is None or value - expected <= BACK * reach) and (
        lower is None or expected - value <= BACK * reach
    )
    return Reading(
        is_out=is_out,
        is_back=is_near,
        level=min(max(level, 1), MOST_LEVEL) if is_out else 0,
        expected=expected,
        lower=lower,
        upper=upper,
    )


def cut(value: float, reading: Reading | None) -> float:
    """The value, cut to the bounds: what is out is learned slowly, and does not become the normal at once."""
    if reading is None:
        return value
    if reading.upper is not None:
        value = min(value, reading.upper)
    return value if reading.lower is None else max(value, reading.lower)


def register(detector: K) -> K:
    _detectors[detector.name] = detector()
    return detector


@cache
def detectors() -> Mapping[str, Detector[Any]]:
    """Every detector by name."""
    package = import_module("triggers.sources.metrics.detectors")
    for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
        import_module(module.name)
    return dict(sorted(_detectors.items()))
