"""Episodes: from the readings of a detector, one transition each when an episode opens, worsens by a step, and closes.

Pure: the state before, the observation and the reading give the state after, and at most one transition.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

from triggers.sources.metrics.detector import Detector, Observation, Reading, Terms

MOST_AN_HOUR = 6  # episodes of one detector and series that make events
HOUR = 3600.0


class Change(StrEnum):
    """The change of an episode; also the last part of its event's type."""

    OPENED = "opened"
    WORSENED = "worsened"
    CLOSED = "closed"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of the episode of one detector and one series. Times are in seconds since 1970."""

    opened_at: float | None = None  # of the open episode
    since: float | None = None  # when what became the episode began
    level: int = 0
    out_since: float | None = None
    back_since: float | None = None
    openings: tuple[float, ...] = ()  # of the last hour
    held_back: int = 0  # episodes that the limit of an hour kept from opening, since the last one that opened
    is_held_back: bool = False  # the present one is


@dataclass(frozen=True, kw_only=True)
class Transition:
    change: Change
    at: float
    opened_at: float
    since: float
    level: int
    value: float | None
    reading: Reading
    held_back: int = 0
    quiet_until: float | None = None  # no further episode opens before; None: the limit of an hour is not reached


@dataclass(frozen=True, kw_only=True)
class Seen:
    """The result of an observation: the state for the next one, the detector's reading, and the transition, if there is one."""

    state: dict[str, Any]
    reading: Reading | None
    transition: Transition | None


def see(detector: Detector[Any], settings: Terms, state: Mapping[str, Any], observation: Observation) -> Seen:
    """Let a detector judge an observation with this state, which is empty at first."""
    learned, reading = detector.judge(settings, dict(state.get("learned", {})), observation)
    progress = _not_ahead(load(state.get("progress", {})), observation.at)
    transition = None
    if reading:
        progress, transition = follow(settings, progress, observation, reading)
    return Seen(state={"learned": learned, "progress": asdict(progress)}, reading=reading, transition=transition)


def load(stored: Mapping[str, Any]) -> Progress:
    return Progress(**{**stored, "openings": tuple(stored.get("openings", ()))})


def _not_ahead(progress: Progress, now: float) -> Progress:
    """Nothing lasts since the future: the clock may have been set back."""
    out_since, back_since = (at and min(at, now) for at in (progress.out_since, progress.back_since))
    openings = tuple(min(at, now) for at in progress.openings)
    return replace(progress, out_since=out_since, back_since=back_since, openings=openings)


def follow(
    terms: Terms, progress: Progress, observation: Observation, reading: Reading
) -> tuple[Progress, Transition | None]:
    if progress.opened_at is None:
        return _while_closed(terms, progress, observation, reading)
    return _while_open(terms, progress, observation, reading)


def _while_closed(
    terms: Terms, progress: Progress, observation: Observation, reading: Reading
) -> tuple[Progress, Transition | None]:
    if not reading.is_out:
        return replace(progress, out_since=None, is_held_back=False), None
    since = observation.at if progress.out_since is None else progress.out_since
    progress = replace(progress, out_since=since)
    if observation.at - since < terms.hold_seconds:
        return progress, None
    openings = tuple(at for at in progress.openings if at > observation.at - HOUR)
    if len(openings) >= MOST_AN_HOUR:
        counted = progress.held_back + (not progress.is_held_back)
        return replace(progress, openings=openings, is_held_back=True, held_back=counted), None
    openings = (*openings, observation.at)
    held_back = progress.held_back - progress.is_held_back  # the one that opens now is not held back any more
    opened = Progress(opened_at=observation.at, since=since, level=reading.level, openings=openings)
    return opened, Transition(
        change=Change.OPENED, at=observation.at, opened_at=observation.at, since=since, level=reading.level, value=observation.value,
        reading=reading, held_back=held_back, quiet_until=openings[0] + HOUR if len(openings) == MOST_AN_HOUR else None,
    )  # fmt: skip


def _while_open(
    terms: Terms, progress: Progress, observation: Observation, reading: Reading
) -> tuple[Progress, Transition | None]:
    if reading.is_back:
        back_since = observation.at if progress.back_since is None else progress.back_since
        if observation.at - back_since < terms.release_seconds:
            return replace(progress, back_since=back_since), None
        return Progress(openings=progress.openings), _transition(
            Change.CLOSED, progress, observation, reading, progress.level
        )
    progress = replace(progress, back_since=None)
    if not reading.is_out or reading.level <= progress.level:
        return progress, None
    return replace(progress, level=reading.level), _transition(
        Change.WORSENED, progress, observation, reading, reading.level
    )


def _transition(
    change: Change, progress: Progress, observation: Observation, reading: Reading, level: int
) -> Transition:
    assert progress.opened_at is not None and progress.since is not None  # noqa: S101  (it is open)
    return Transition(
        change=change, at=observation.at, opened_at=progress.opened_at, since=progress.since, level=level, value=observation.value,
        reading=reading,
    )  # fmt: skip
