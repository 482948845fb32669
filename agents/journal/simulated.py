"""One execution of a durable body beside a journal that is not in the database: what a test and a shadow run have in
common. Either says what is known already, what a wait gives, and where the execution ends."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NoReturn

from django.db import connection, transaction

from agents.effects import Effects
from agents.exceptions import Permanent, Retry, StepFailed, is_permanent
from agents.guards.network import network_refused
from agents.guards.storable import storable
from agents.journal.keys import Places
from agents.journal.protocol import Place, StepWish, WaitWish


@dataclass(eq=False)
class Begun:
    """A step that has been begun, or whose output is known."""

    key: str
    wish: StepWish
    is_recorded: bool = False
    output: Any = None
    attempts: int = 1
    effects: Effects = field(default_factory=Effects)


# The step that is under way, in this thread or task.
_current: ContextVar[Begun | None] = ContextVar("step of an execution", default=None)


class Execution:
    """Implements `agents.journal.protocol.Journal`."""

    def __init__(self, agent: str) -> None:
        self.agent = agent
        self.left = Effects()  # by the steps that were done
        self.end: BaseException | None = None  # once there is one, nothing goes on
        self._places = Places()
        self._depth = _depth()

    # What is to be said of it

    def recall(self, key: str, wish: StepWish) -> Begun | None:
        """A step whose outcome is known, or that was tried before; None: it is new. May raise what it raised then."""
        raise NotImplementedError

    def recall_value(self, place: Place, key: str, draw: Callable[[], Any]) -> Any:
        """A value as it came out the first time, or drawn now."""
        raise NotImplementedError

    def answer(self, key: str, wish: WaitWish) -> Any:
        """What came of a wait."""
        raise NotImplementedError

    def check(self, effects: Effects) -> None:
        """May a step leave this behind? Permanent: why not."""
        raise NotImplementedError

    def done(self, begun: Begun, output: Any) -> None:
        """A step was done just now."""

    def failed(self, begun: Begun, error: StepFailed) -> None:
        """A step failed just now."""

    def unsure(self, begun: Begun, error: BaseException) -> NoReturn:
        """What may happen at most once raised something that does not say whether it happened."""
        raise NotImplementedError

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with transaction.atomic():
            yield

    # What the body sees

    @property
    def effects(self) -> Effects | None:
        step = _current.get()
        return step.effects if step else None

    @property
    def step_key(self) -> str:
        step = _current.get()
        return step.key if step else ""

    @property
    def may_write(self) -> bool:
        step = _current.get()
        return step is not None and step.wish.effect == "transactional"

    def begin(self, wish: StepWish) -> Begun:
        key = self._ask(wish.place)
        self._refuse_inside_atomic(f"step {key!r} inside transaction.atomic(): a step has a commit of its own")
        return self.recall(key, wish) or Begun(key, wish)

    @contextmanager
    def inside(self, begun: Begun) -> Iterator[None]:
        token = _current.set(begun)
        try:
            with self._places.occupied():
                yield
        finally:
            _current.reset(token)

    def perform(self, begun: Begun, body: Callable[[], Any]) -> Any:
        try:
            if begun.wish.effect == "transactional":
                with self.transaction():
                    with self.inside(begun), network_refused(self.agent, begun.key):
                        output = body()
                    output = self._checked(begun, output)
            else:
                with self.inside(begun):
                    output = body()
                output = self._checked(begun, output)
        except Exception as error:
            failure = self.fail(begun, error)
            raise failure from (None if failure is error else error)
        return self._keep(begun, output)

    def complete(self, begun: Begun, output: Any) -> Any:
        try:
            output = self._checked(begun, output)
        except Permanent as error:
            raise self.fail(begun, error) from error
        return self._keep(begun, output)

    def fail(self, begun: Begun, error: Exception) -> Exception:
        if isinstance(error, Retry):
            return error
        if begun.wish.effect == "at_most_once" and not is_permanent(error):
            self.unsure(begun, error)
        failure = StepFailed(begun.key, type(error).__name__, str(error), permanent=is_permanent(error))
        self.failed(begun, failure)
        return failure

    def value(self, place: Place, draw: Callable[[], Any]) -> Any:
        key = self._ask(place)
        return as_stored(self.recall_value(place, key, draw), key)

    def wait(self, wish: WaitWish) -> Any:
        self._refuse_inside_atomic(f"{wish.place.name!r}: a run cannot wait inside transaction.atomic()")
        return self.answer(self._ask(wish.place), wish)

    # Ends

    def stop(self, end: BaseException) -> NoReturn:
        """The body goes no further, whatever it makes of that."""
        self.end = self.end or end
        raise self.end

    def require_end(self) -> None:
        """The body has returned: what stopped it may have been caught."""
        if self.end:
            raise self.end

    @property
    def is_own_thread(self) -> bool:
        return self._places.is_own_thread

    def _ask(self, place: Place) -> str:
        if self.end:
            raise self.end
        return self._places.ask(place, inside=self.step_key)

    def _refuse_inside_atomic(self, said: str) -> None:
        if _depth() != (self._depth if self.is_own_thread else 0):
            raise Permanent(said)

    def _checked(self, begun: Begun, output: Any) -> Any:
        self.check(begun.effects)
        return as_stored(output, f"the output of step {begun.key!r}")

    def _keep(self, begun: Begun, output: Any) -> Any:
        for name, left in vars(begun.effects).items():
            getattr(self.left, name).extend(left)
        self.done(begun, output)
        return output


def as_stored(value: Any, what: str) -> Any:
    """The value as PostgreSQL would give it back; Permanent: it is no JSON."""
    return json.loads(json.dumps(storable(value, what)))


def _depth() -> int:
    """How many atomic blocks are open."""
    return int(connection.in_atomic_block) + len(connection.savepoint_ids)
