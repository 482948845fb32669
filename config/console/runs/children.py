"""The outcomes of a run's children, by the names under which it spawned them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from runs.models import Run, Step
from runs.states import RunStatus

SPAWN = "spawn "  # prefix of a journal key that spawned a child


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The number of children, and of failed and cancelled ones."""

    count: int
    failed: int = 0
    cancelled: int = 0

    @property
    def words(self) -> str:
        """E.g. “7 children finished, 1 failed”."""
        noun = "child" if self.count == 1 else "children"
        told = [
            f"{number} {word}" for number, word in ((self.failed, "failed"), (self.cancelled, "cancelled")) if number
        ]
        return ", ".join([f"{self.count} {noun} finished", *told])


def ended(children: Sequence[UUID], statuses: Mapping[UUID, str]) -> Ended:
    counts = Counter(statuses.get(id) for id in children)
    return Ended(count=len(children), failed=counts[RunStatus.FAILED], cancelled=counts[RunStatus.CANCELLED])


def statuses_of(ids: Iterable[UUID]) -> dict[UUID, str]:
    wanted = sorted(set(ids))
    return dict(Run.objects.filter(id__among=wanted).values_list("id", "status")) if wanted else {}


def spawned_by(run_ids: Iterable[UUID], keys: Iterable[str] | None = None) -> dict[UUID, str]:
    """The journal keys that spawned children of durable runs, by child."""
    steps = Step.objects.filter(run_id__in=list(run_ids), key__startswith=SPAWN, status=Step.Status.DONE)
    if keys is not None:
        steps = steps.filter(key__in=list(keys))
    return {id: key for key, output in steps.values_list("key", "output") if (id := _id(output))}


def name_of(key: str) -> str:
    """E.g. “pick:bad-1” for the entry “spawn pick:bad-1”."""
    return key.removeprefix(SPAWN)


def _id(output: object) -> UUID | None:
    """The id of the child that the entry spawned, if any: an agent's own step may have a key with this prefix."""
    try:
        return UUID(output) if isinstance(output, str) else None
    except ValueError:
        return None
