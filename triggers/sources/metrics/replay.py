"""Try a detector on a stored series: its readings of each sample, and its episodes."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from triggers.sources.metrics.detector import Detector, Observation, Reading, Terms
from triggers.sources.metrics.episodes import Change, Transition, see

LOOKS_IN_A_GAP = 50
LOOKS_IN_GAPS = 10_000  # of all gaps, at least one in each


@dataclass(frozen=True, kw_only=True)
class Replayed:
    readings: list[tuple[Observation, Reading | None]] = field(default_factory=list)
    transitions: list[Transition] = field(default_factory=list)

    @property
    def episodes(self) -> list[tuple[Transition, Transition | None]]:
        """Each opening with the transition that closed it; None if it is open at the end."""
        closed = {one.opened_at: one for one in self.transitions if one.change is Change.CLOSED}
        return [(one, closed.get(one.opened_at)) for one in self.transitions if one.change is Change.OPENED]


def replay(detector: Detector[Any], settings: Terms, observations: Iterable[Observation]) -> Replayed:
    replayed, state = Replayed(), dict[str, Any]()
    for observation in with_absence(observations) if detector.sees_absence else observations:
        seen = see(detector, settings, state, observation)
        state = seen.state
        replayed.readings.append((observation, seen.reading))
        if seen.transition:
            replayed.transitions.append(seen.transition)
    return replayed


def with_absence(observations: Iterable[Observation]) -> Iterator[Observation]:
    """Looks without a value between two samples that are far from each other, as a process would have had them: the usual distance
    apart, up to LOOKS_IN_A_GAP of a gap, and to LOOKS_IN_GAPS."""
    samples = list(observations)
    gaps = [after.at - before.at for before, after in zip(samples, samples[1:], strict=False)]
    usual = sorted(gaps)[len(gaps) // 2] if gaps else 0.0
    most = min(max(LOOKS_IN_GAPS // (sum(gap > 1.5 * usual for gap in gaps) or 1), 1), LOOKS_IN_A_GAP)
    for observation, gap in zip(samples, [*gaps, 0.0], strict=True):
        yield observation
        if usual and gap > 1.5 * usual:
            count = min(int(gap / usual), most)
            yield from (
                Observation(observation.at + gap * number / (count + 1), None) for number in range(1, count + 1)
            )
