"""Recorded series of public data; README.md names their origin."""

import csv
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from triggers.sources.metrics.detector import Observation, detectors
from triggers.sources.metrics.replay import replay

HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Labelled:
    """A series, and the beginnings and ends of the episodes that others have named in it."""

    name: str
    column: str
    episodes: tuple[tuple[str, str], ...]


NILE = Labelled(name="nile", column="flow", episodes=(("1899-01-01", "1970-01-01"),))
CLAIMS = Labelled(
    name="initial_claims",
    column="claims",
    episodes=(
        ("2012-11-10", "2012-11-24"),
        ("2013-10-05", "2013-10-19"),
        ("2017-09-02", "2017-09-23"),
        ("2020-03-14", "2020-06-27"),
    ),
)
EL_NINOS = (
    ("1951-06-01", "1952-01-01"),
    ("1953-04-01", "1953-12-01"),
    ("1957-04-01", "1958-05-01"),
    ("1963-07-01", "1964-02-01"),
    ("1965-06-01", "1966-03-01"),
    ("1968-10-01", "1969-05-01"),
    ("1972-06-01", "1973-03-01"),
    ("1976-09-01", "1977-02-01"),
    ("1977-10-01", "1978-02-01"),
    ("1982-05-01", "1982-12-01"),
)
ANOMALY = Labelled(name="nino34", column="anomaly", episodes=EL_NINOS)
TEMPERATURE = Labelled(name="nino34", column="temperature", episodes=EL_NINOS)
# Weeks without a value, from the first one to the next value.
CARBON_DIOXIDE = Labelled(
    name="co2_weekly",
    column="co2",
    episodes=(
        ("1958-05-31", "1958-07-05"),
        ("1958-09-13", "1958-11-08"),
        ("1964-01-25", "1964-05-30"),
        ("1984-03-31", "1984-04-28"),
    ),
)


@dataclass(frozen=True, kw_only=True)
class Score:
    """What a detector finds of the labelled episodes. `delay`: the median time from the beginning of one to its event."""

    found: int
    of: int
    false: int
    delay: timedelta
    worsened: int


def observations(series: Labelled) -> list[Observation]:
    with (HERE / f"{series.name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    [first, *_] = rows[0]
    return [Observation(_seconds(row[first]), float(row[series.column])) for row in rows]


def score(series: Labelled, detector: str, **settings: object) -> Score:
    known = detectors()[detector]
    replayed = replay(known, known.clean_settings(settings), observations(series))
    labelled = [(_seconds(start), _seconds(end)) for start, end in series.episodes]
    opened = [opening.at for opening, _ in replayed.episodes]
    delays = sorted(
        found[0] - start for start, end in labelled if (found := [at for at in opened if start <= at <= end])
    )
    false = [at for at in opened if not any(start <= at <= end for start, end in labelled)]
    return Score(
        found=len(delays),
        of=len(labelled),
        false=len(false),
        delay=timedelta(seconds=delays[len(delays) // 2] if delays else 0),
        worsened=len(replayed.transitions) - 2 * len(opened) + sum(closed is None for _, closed in replayed.episodes),
    )


def _seconds(day: str) -> float:
    at = date.fromisoformat(day if "-" in day else f"{day}-01-01")
    return datetime(at.year, at.month, at.day, tzinfo=UTC).timestamp()
