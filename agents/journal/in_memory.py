"""A journal in memory, for tests. Transactional steps run in savepoints of the test's transaction."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.db import connection, transaction

from agents.guards.effects import check_effects
from agents.journal.entries import NewWait, RecordedStep, RecordedWait, StepEntry, recorded, sought_by
from agents.journal.protocol import Ended, WaitRequest
from agents.journal.store import Store
from agents.kernel.effects import Effects


@dataclass(frozen=True, kw_only=True)
class KeptWait:
    """A wait; `came` is its result once it is over."""

    key: str
    position: int
    is_keyed: bool
    request: WaitRequest
    is_over: bool
    came: Any

    @property
    def sought(self) -> tuple[str, ...]:
        return sought_by(self.request)

    @property
    def asked_about(self) -> Any:
        return getattr(self.request, "arguments", None)

    def result(self) -> Any:
        return self.came

    def ends(self) -> list[dict[str, Any]]:
        ended: Sequence[Ended] = self.came
        return [vars(end) for end in ended]


class MemoryStore(Store):
    """Writes to the given `steps` and `waits`."""

    def __init__(self, agent: str, steps: dict[str, RecordedStep], waits: dict[str, RecordedWait]) -> None:
        self.agent = agent
        self.max_output = settings.WAKEFUL_MAX_OUTPUT
        self.max_entries = settings.WAKEFUL_MAX_ENTRIES
        self.steps: dict[str, RecordedStep] = steps
        self.waits: dict[str, RecordedWait] = waits
        self.left = Effects()  # of the steps that ran
        self.is_writing = False  # the store itself writes, not the body
        self._outside = Nesting()

    @contextmanager
    def transaction(self, key: str) -> Iterator[None]:
        with transaction.atomic():
            yield

    def write(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        from agents.models import taint_written

        check_effects(effects)
        self.is_writing = True
        taint_written(self.agent, **effects.tainted)
        self.is_writing = False
        self.left.extend(effects)
        self.steps.update({entry.key: recorded(entry) for entry in entries})
        return False

    def commit(self, entries: Sequence[StepEntry], effects: Effects, *, at: str) -> bool:
        return self.write(entries, effects, at=at)

    def keep(self, wait: NewWait, *, is_over: bool, came: Any = None) -> KeptWait:
        place: dict[str, Any] = {"key": wait.key, "position": wait.position, "is_keyed": wait.is_keyed}
        self.waits[wait.key] = kept = KeptWait(**place, request=wait.request, is_over=is_over, came=came)
        return kept

    def forget(self, key: str) -> None:
        del self.steps[key]

    @property
    def in_transaction(self) -> bool:
        return self._outside.is_left

    def leave_thread(self) -> None:
        connection.close()


class Nesting:
    """The number of atomic blocks open around a body when it began; its other threads have sessions of their own."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._depth = _depth()

    @property
    def is_own_thread(self) -> bool:
        return threading.get_ident() == self._thread

    @property
    def is_left(self) -> bool:
        """Has the body opened or closed an atomic block?"""
        return _depth() != (self._depth if self.is_own_thread else 0)


def _depth() -> int:
    return int(connection.in_atomic_block) + len(connection.savepoint_ids)
