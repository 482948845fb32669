"""What became of the runs that a run spawned, under the names by which it spawned them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from runs.models import Run, Step
from runs.states import RunStatus

SPAWN = "spawn "  # what the key of a journal's entry of a child begins with


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How many children there are, and how many of them came to no good end."""

    count: int
    failed: int = 0
    cancelled: int = 0

    @property
    def words(self) -> str:
        """Such as “7 children finished, 1 failed”."""
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
    """By the children of durable runs: the keys of the journals' entries that spawned them."""
    steps = Step.objects.filter(run_id__in=list(run_ids), key__startswith=SPAWN, status=Step.Status.DONE)
    if keys is not None:
        steps = steps.filter(key__in=list(keys))
    return {id: key for key, output in steps.values_list("key", "output") if (id := _id(output))}


def name_of(key: str) -> str:
    """Of the entry “spawn pick:bad-1” it is “pick:bad-1”."""
    return key.removeprefix(SPAWN)


def _id(output: object) -> UUID | None:
    """A step of the agent's own may be called so, too."""
    try:
        return UUID(output) if isinstance(output, str) else None
    except ValueError:
        return None
