from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from agents.guards.storable import storable
from agents.journal.protocol import Place
from agents.kernel.effects import Effects, Written

from .exceptions import StateConflict

Leave = Callable[[Place, Callable[[str], Any]], Any]
Value = Callable[[str, Callable[[], Any]], Any]


class Writer(Protocol):
    """The run that reads and writes the values."""

    @property
    def is_tainted(self) -> bool: ...
    @property
    def effects(self) -> Effects: ...
    def taint(self) -> None: ...


class Revisions:
    """The revisions that a run has read and written, by name."""

    def __init__(self) -> None:
        self._revisions: dict[str, int] = {}

    @contextmanager
    def undone_by_failure(self) -> Iterator[None]:
        """Encloses a step: if it fails, the values it has set count as not set."""
        seen = dict(self._revisions)
        try:
            yield
        except BaseException:
            self._revisions = seen
            raise


class State(Revisions):
    """An agent's values between runs, by name; read and written in the transaction of the run, or of a durable run's step."""

    def __init__(
        self,
        agent: str,
        leave: Leave = lambda place, act: act(""),
        value: Value = lambda name, draw: draw(),
        run: Writer | None = None,
    ) -> None:
        super().__init__()
        self._agent = agent
        self._leave = leave
        self._value = value
        self._run = run

    def get(self, name: str, default: Any = None) -> Any:
        """The last committed value, or the one that this run has set; in a durable run the same value on every replay. A value
        that a tainted run has set taints this run."""
        found = self._value(f"state {name}", lambda: self._read(name))
        if found and found[2:] == [True] and self._run:
            self._run.taint()
        self._revisions[name] = found[1] if found else 0
        return found[0] if found else default

    def set(self, name: str, value: Any) -> None:
        """Write a JSON value; StateConflict (a retry) if another run wrote it after this one read it."""
        self._leave(Place(name=f"set state {name}", is_numbered=True), lambda step: self._write(name, value))
        if name in self._revisions:
            self._revisions[name] += 1

    def _read(self, name: str) -> list[Any] | None:
        row = self._rows().filter(name=name).values_list("value", "revision", "is_tainted").first()
        return list(row) if row else None

    def _write(self, name: str, value: Any) -> None:
        from django.db.models import F
        from django.db.models.functions import Now

        from .models import AgentState

        value = storable(value, f"state {name!r}")
        written_as = {"value": value, "is_tainted": self._run is not None and self._run.is_tainted}
        seen = self._revisions.get(name)
        if seen is None:
            # This run has not read the value before, so no change of another run can conflict; a replay skips this read.
            found = self._read(name)
            seen = found[1] if found else 0
        if seen == 0:
            _, written = AgentState.objects.get_or_create(agent=self._agent, name=name, defaults=written_as)
        else:
            changed = (
                self._rows()
                .filter(name=name, revision=seen)
                .update(**written_as, revision=F("revision") + 1, updated_at=Now())
            )
            written = changed == 1
        if not written:
            raise StateConflict(f"state {name!r} of agent {self._agent!r} was changed by another run")
        if self._run and not written_as["is_tainted"]:
            self._run.effects.written.append(Written(kind="value", name=name))

    def _rows(self) -> Any:
        from .models import AgentState

        return AgentState.objects.filter(agent=self._agent)
