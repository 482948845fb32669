"""The base of all kinds of metrics: they are polled, and return samples instead of messages."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import structlog

from triggers.sources.continuity import Gaps
from triggers.sources.kind import Group
from triggers.sources.metrics.samples import Metered, Sample, take_in
from triggers.sources.polling.poller import EverySettings, Polled, Poller, PollingReader, interval
from triggers.sources.process.poison import keep
from triggers.sources.runner import Assignment, Poison, SourceError
from triggers.sources.settings import setting

log = structlog.get_logger(__name__)

TWICE = "the answer has this series more than once, and the first number counts"
M = TypeVar("M", bound="EverySettings")


@dataclass(frozen=True, kw_only=True)
class MetricSettings(EverySettings):
    """Settings of all metrics: how often the number is read."""

    every: str = setting(
        "1m", "Every", "Time between two samples, such as 30s, 1m or 1h; from 10s to 7d.", check=interval
    )


class Metric(Poller[M]):
    """A kind of source whose samples are numbers. Its events are those of the episodes that its detectors find."""

    gaps = Gaps(
        are_seen=False,
        how="a value between two samples leaves no trace; the detector “missing” sees that samples are absent.",
    )
    is_trusted = True  # numbers
    group = Group.METRICS
    docs = "metrics"
    noun: ClassVar[str] = "metric"  # the beginning of the types of its events


class MetricReader(PollingReader):
    """Reads numbers when they are due. Detectors that see absence also look when the source does not answer."""

    def __init__(self, assignment: Assignment[Any], *, target: str, noun: str = Metric.noun) -> None:
        super().__init__(assignment, target=target)
        assert isinstance(assignment.source_id, UUID)  # noqa: S101  (the process names it)
        self.source = Metered(source_id=assignment.source_id, slug=assignment.slug, noun=noun)

    @abstractmethod
    def samples(self) -> Sequence[Sample]:
        """The numbers now. Raises SourceError."""

    def poll(self, state: dict[str, Any]) -> Polled:
        try:
            samples = self.samples()
        except SourceError as error:
            failure = error
        except Exception as error:
            # Errors of a library, or of a function that the code declares: missing data is still noticed.
            log.exception("metric.not_read", source=self.source.slug)
            failure = SourceError(f"{type(error).__name__}: {error}")
        else:
            return Polled(state=state, keep=partial(self._keep, samples))
        return Polled(state=state, keep=partial(self._keep, ()), failure=failure)

    def _keep(self, samples: Sequence[Sample]) -> None:
        taken = take_in(self.source, samples)
        # One of each reason in a day: a query that answers too much does so again and again.
        reasons = {one.reason: samples[one.index] for one in reversed(taken.refused)}
        counts = Counter(one.series for one in samples)
        if twice := [one for one in samples if counts[one.series] > 1]:
            reasons[TWICE] = twice[0]
        keep(
            self.source.source_id,
            self.source.slug,
            [
                Poison(id=f"{datetime.now(UTC):%Y-%m-%d}: {reason}", reason=f"{one.series[:50]!r}: {reason}")
                for reason, one in reasons.items()
            ],
        )


def now() -> datetime:
    return datetime.now(UTC)


def is_none(value: Any) -> bool:
    """Whether the value is no number, such as null, or NaN of a division by zero: this series then gets no sample, and
    the others are unaffected.
    """
    return value is None or (isinstance(value, (float, Decimal)) and not math.isfinite(value))


def as_number(value: Any) -> float | None:
    """The number that a JSON value or a column holds; None if it holds none."""
    if isinstance(value, bool) or value is None:
        return None if value is None else float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return found if found == found and abs(found) != float("inf") else None
