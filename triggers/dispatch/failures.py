"""Handle work that fails: halve the batch, set units aside, give them up, or retry everything later.

A batch that fails is halved until it succeeds or one failing unit is left. What happens to this unit depends on the error:

- An error that may be the unit's own (data that cannot be stored, an exception while it is matched or admitted): the unit is
  set aside, so that the others go on. If it fails again although others have succeeded, it is given up.
- A lock that another session holds: the unit is set aside until the lock is free.
- Any other error (a schema that does not fit, a missing grant, a read-only server, a time-out) is not the fault of a unit:
  nothing is marked, an alarm begins, and the same work is retried with a back-off. If only the first unit keeps failing, it is
  set aside too, but never given up for such an error.
"""

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass, field
from typing import Generic, TypeVar
from uuid import UUID

import structlog
from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection
from psycopg.errors import LockNotAvailable

from runs.db.errors import is_own, name_of, sqlstate_of
from runs.models import Alarm
from runs.notifications import alarms
from runs.processes.failing import Failing
from runs.queues.stayers import Stayers
from triggers.dispatch import batch as dispatch
from triggers.dispatch import close_windows
from triggers.dispatch.batch import MOST, Batch, Beside
from triggers.dispatch.order_of_keys import Behind
from triggers.dispatch.overtaking import Overtaking
from triggers.dispatch.rules import Rules
from triggers.matching.match import cost_of, wanted_by, within
from triggers.matching.matches import Group
from triggers.matching.pending import Identity, Item, read_items, read_these
from triggers.matching.slow_lane import Costly
from triggers.switches import fire

log = structlog.get_logger(__name__)

T = TypeVar("T")

RETRY, RETRY_MAX = 1.0, 30.0  # seconds
PROBES = 5  # attempts of the first unit before others are tried
ALIKE = 3  # units in a row that fail while none succeeds: not the fault of the units
GIVEN_UP_ALIKE = 10  # units that are given up for the same error within GIVEN_UP_WITHIN; further ones are kept
GIVEN_UP_WITHIN = 600.0  # seconds
MOST_ASIDE = 1000
ANSWERS = 0.02  # seconds between two looks for answers to costly cases
HELD_UP = 6  # failures with its own error, after which later units of its keys no longer wait
EVENTS, WINDOWS, ABSENCES = "dispatch-refused", "windows-refused", "absences-refused"  # alarms


@dataclass(kw_only=True)
class Aside(Generic[T]):
    """A unit of work that failed alone."""

    unit: T
    error: Exception
    is_own: bool
    seen: int
    made_before: int
    retry_at: float
    delay: float = field(default_factory=lambda: RETRY)

    def put_off(self) -> None:
        self.delay = min(self.delay * 2, RETRY_MAX)
        self.retry_at = time.monotonic() + self.delay


@dataclass(kw_only=True)
class Refused:
    """All work fails: how often in a row, and the time of the next attempt."""

    times: int
    retry_at: float
    delay: float


@dataclass(frozen=True, kw_only=True)
class Work(Generic[T]):
    """Work in units. `next` reads units up to a total size, without those set aside; `again` reads one unit again; `run`
    processes units in one transaction; `size` is an upper bound of their rows; `hold` makes later units of the same keys wait;
    `triggers` are those that match a unit; `wait`: seconds after which there may be more work without a NOTIFY."""

    next: Callable[[int, Sequence[T]], Sequence[T]]
    again: Callable[[T], Sequence[T]]
    run: Callable[[Sequence[T], int], Batch]
    size: Callable[[Sequence[T]], int]
    give_up: Callable[[T, Exception], Batch]
    identity: Callable[[T], Hashable]
    noun: str
    alarm: str
    hold: Callable[[Sequence[T]], None] = lambda aside: None
    triggers: Callable[[T], frozenset[UUID]] = lambda unit: frozenset()
    wait: Callable[[], float | None] = lambda: None


class Careful(Generic[T]):
    """Does one kind of work, a batch per call."""

    def __init__(self, work: Work[T]) -> None:
        self.work = work
        self.most = MOST
        self.aside: dict[Hashable, Aside[T]] = {}
        self.alike: list[Hashable] = []  # set aside in a row while no unit succeeded
        self.refused: Refused | None = None
        self.made = 0
        self.given_up: dict[str, deque[tuple[float, frozenset[UUID]]]] = {}
        self.went_through: dict[UUID, int] = {}  # by trigger: `made` when an event of it last succeeded
        self.is_full = False  # all work waits only because too many units are set aside
        self.is_alarmed = True  # an earlier dispatcher may have left its alarm open
        self.owed: tuple[str, str] | None = None  # text and remedy of an alarm that could not be written yet
        self.session: object = None  # at the beginning of the batch

    def __call__(self) -> Batch:
        """Do a batch. Handles all errors except a lost session, which it raises."""
        if self.owed:
            self._alarm(*self.owed)
        now, self.session = time.monotonic(), connection.connection
        if self.refused and now < self.refused.retry_at:
            return Batch()
        batch = self._retry(now)
        try:
            self.work.hold([one.unit for one in self.aside.values() if not one.is_own or one.seen < HELD_UP])
            units = self.work.next(self.most, [one.unit for one in self.aside.values()])
        except Exception as error:
            self._refuse(error)
            raise_if_lost(error, self.session)
            return batch
        if units:
            return batch + self._do(units)
        self.refused, self.alike, self.is_full = None, [], False
        self._end_alarm()
        return batch

    @property
    def wait(self) -> float | None:
        """Seconds until the next retry; None: there is none."""
        if self.refused:
            return max(self.refused.retry_at - time.monotonic(), 0)
        due = min((one.retry_at for one in self.aside.values()), default=None)
        waits = [self.work.wait(), None if due is None else max(due - time.monotonic(), 0)]
        return min((wait for wait in waits if wait is not None), default=None)

    def _do(self, units: Sequence[T]) -> Batch:
        try:
            batch = self.work.run(units, self.most)
        except Exception as error:
            self._failed(units, error)
            raise_if_lost(error, self.session)
            return Batch(left=len(units))
        if batch.has_progressed:
            self._went_through(batch, units)
        elif not batch.standby:
            self.most = min(self.most * 2, MOST)  # all units that were read have to wait; there may be many
        return batch

    def _went_through(self, batch: Batch, units: Sequence[T]) -> None:
        self.most = min(self.most * 2, MOST)
        self.made += batch.made
        if batch.made:
            self.refused = None
            self.alike = []
            self.is_full = False
        if batch.made and not batch.left and self.aside:
            self.went_through.update((id, self.made) for unit in units for id in self.work.triggers(unit))
        self._end_alarm()

    def _failed(self, units: Sequence[T], error: Exception) -> None:
        size = min(self.work.size(units), self.most)
        if size > 1:
            self.most = max(size // 2, 1)
            log.warning("dispatch.halved", most=self.most, exc_info=error)
        elif is_own(error) or is_locked(error) or (self.refused and self.refused.times >= PROBES):
            self._set_aside(units[0], error)
        else:
            self._refuse(error)

    def _set_aside(self, unit: T, error: Exception) -> None:
        identity, now = self.work.identity(unit), time.monotonic()
        log.warning("dispatch.set_aside", unit=str(identity), exc_info=error)
        self.aside[identity] = Aside(
            unit=unit, error=error, is_own=is_own(error), seen=1, made_before=self.made, retry_at=now + RETRY
        )
        if is_locked(error):
            self._refuse_if_full(identity, error)
            return  # a lock of another session is no sign that other units fail
        self.alike.append(identity)
        # Try more units each time, because many bad units may be first.
        probes = ALIKE * 2 ** min(self.refused.times if self.refused else 0, 9) if is_own(error) else ALIKE
        if len(self.alike) >= probes:
            # They keep their places in the order: no later unit has been processed.
            for one in self.alike:
                self.aside.pop(one, None)
            self.alike = []
            self._refuse(error)
        else:
            self._refuse_if_full(identity, error)

    def _refuse_if_full(self, identity: Hashable, error: Exception) -> None:
        """If too many units are set aside, keep this one in the order and wait until retries of the others make room."""
        if len(self.aside) <= MOST_ASIDE:
            return
        del self.aside[identity]
        self.alike = [one for one in self.alike if one != identity]
        self._refuse(error)
        self.is_full = True
        if self.refused:
            self.refused.delay, self.refused.retry_at = 0.0, time.monotonic() + RETRY

    def _refuse(self, error: Exception) -> None:
        now = time.monotonic()
        delay = min(self.refused.delay * 2, RETRY_MAX) if self.refused else RETRY
        times = self.refused.times + 1 if self.refused else 1
        self.is_full = False
        self.refused = Refused(times=times, retry_at=now + delay, delay=delay)
        log.error("dispatch.refused", retry_in=delay, exc_info=error)
        if times > 1:
            text = f"Dispatch fails: {name_of(error)}. Events are accepted and kept, but start no run."
            self._alarm(text, remedy_of(error))

    def _retry(self, now: float) -> Batch:
        """Retry one unit that is set aside, alone: the one that is due first. While all work fails, retry the first unit: if it
        succeeds, the fault is over, and the units behind it return to their places."""
        due = self._first() if self.refused and not self.is_full else self._oldest()
        if due is None or now < due.retry_at:
            return Batch()
        identity = self.work.identity(due.unit)
        units = self.work.again(due.unit)
        if not units:
            del self.aside[identity]
            self.alike = [one for one in self.alike if one != identity]
            return Batch()
        try:
            batch = self.work.run(units, MOST if due.is_own else 1)
        except Exception as error:
            due.seen, due.error, due.is_own = due.seen + 1, error, is_own(error)
            due.put_off()
            raise_if_lost(error, self.session)
            return Batch() if self.refused and not self.is_full else self._judge(due, units[0])
        self.made += batch.made
        if batch.dispatched:
            for one in self.alike if self.refused and not self.is_full else [identity]:
                self.aside.pop(one, None)
            for other in self.aside.values():
                other.retry_at = now
            self.refused, self.alike, self.is_full = None, [], False
            self._end_alarm()
        elif not batch.partly:
            due.put_off()  # a key or row that it needs is locked
        return batch

    def _first(self) -> Aside[T] | None:
        return self.aside.get(self.alike[0]) if self.alike else None

    def _oldest(self) -> Aside[T] | None:
        return min(self.aside.values(), key=lambda one: one.retry_at, default=None)

    def _judge(self, due: Aside[T], unit: T) -> Batch:
        """Handle a unit that failed again: give it up if the fault is its own."""
        name = name_of(due.error)
        given_up = self.given_up.setdefault(name, deque(maxlen=GIVEN_UP_ALIKE))
        triggers = self.work.triggers(unit)
        has_room = len(given_up) < GIVEN_UP_ALIKE or time.monotonic() - given_up[0][0] > GIVEN_UP_WITHIN
        # Only events of one trigger fail: that is the fault of the trigger, for any number of events.
        is_of_one = bool(triggers) and all(others == triggers for _, others in given_up)
        has_room |= is_of_one and any(
            made > due.made_before for id, made in self.went_through.items() if id not in triggers
        )
        others_go_through = self.made > due.made_before
        if due.is_own and others_go_through and has_room:
            batch = self.work.give_up(unit, due.error)
            if batch.dispatched:
                given_up.append((time.monotonic(), triggers))
                if self.is_full:
                    self.refused, self.is_full = None, False
                del self.aside[self.work.identity(due.unit)]
                log.error("dispatch.given_up", unit=str(self.work.identity(unit)), exc_info=due.error)
            return batch
        if due.seen < 3:
            return Batch()
        count = f"{len(self.aside)} {self.work.noun}{'s' * (len(self.aside) > 1)}"
        self._alarm(f"Dispatch of {count} fails; it is kept and retried. Latest error: {name}.", remedy_of(due.error))
        return Batch()

    def _alarm(self, text: str, remedy: str) -> None:
        self.owed = text, remedy
        if is_lost():
            return
        try:
            alarms.begin(self.work.alarm, severity=Alarm.Severity.BAD, text=text[:2000], remedy=remedy)
        except DatabaseError:
            log.exception("dispatch.not_alarmed")
        else:
            self.is_alarmed, self.owed = True, None

    def _end_alarm(self) -> None:
        if self.is_alarmed and not self.refused and not self.aside:
            self.owed, self.is_alarmed = None, False
            alarms.end(self.work.alarm)


def has_more_than_units(work: "Careful[T]") -> bool:
    """Must it be called also if there seem to be no units? Some are set aside or refused, or an alarm may have to end."""
    return bool(work.aside or work.refused or work.owed or work.is_alarmed)


def is_locked(error: Exception) -> bool:
    return isinstance(error.__cause__, LockNotAvailable)


def raise_if_lost(error: Exception, session: object) -> None:
    """Raise the error if this session is lost, so that the loop reconnects. At the end of a transaction whose session was lost, Django
    opens another one, which has no time-outs and does not hold the lead. None: there was no session yet."""
    if is_lost() or (session is not None and connection.connection is not session):
        raise error


def is_lost() -> bool:
    return connection.connection is None or bool(connection.connection.closed)


def unless_failed(step: Callable[[], T], otherwise: T, failing: Failing | None = None, name: str = "") -> T:
    """Do this step, and note in `failing` whether it fails. If it does, or waits too long for a lock, the other steps go on; one of
    them, rescue, may free the lock. Raises the error if the session is lost, or OperationalError if the step went on in another one."""
    session = connection.connection
    try:
        done = step()
    except Exception as error:
        raise_if_lost(error, session)
        if is_locked(error):
            log.warning("dispatcher.locked", exc_info=True)
            return otherwise
        log.exception("dispatcher.step_failed", step=name)
        if failing:
            failing.failed(name, error)
        return otherwise
    if session is not None and connection.connection is not session:
        raise OperationalError("the session was lost in a step that went on in another one")
    if failing:
        failing.succeeded(name)
    return done


def remedy_of(error: Exception) -> str:
    state = sqlstate_of(error)
    if state == "55P03":
        return "Find the session that holds the lock in pg_locks and end it; dispatch then continues without a restart."
    if state == "42501":
        return (
            "Grant the missing privilege to the dispatcher's database role; dispatch then continues without a restart."
        )
    if state == "25006":
        return "Set DATABASE_URL to the primary server, or wait until this one is the primary; dispatch then continues."
    if state.startswith("42"):
        return "Run `manage.py migrate` and compare the database's schema with this version; dispatch then continues without a restart."
    if isinstance(error, (OperationalError, InterfaceError)):
        return "Find out what slows down or limits the database; dispatch then continues without a restart."
    return "Read the traceback in the dispatcher's log and fix the cause; dispatch then continues."


def events(
    rules: Rules, costly: Costly | None = None, stayers: Stayers | None = None, beside: Beside | None = None
) -> Careful[Item]:
    """The work of dispatching events. With `costly`, no expression delays the others; with `stayers`, children that wait are woken; what
    can be is dispatched `beside` it."""
    behind, overtaking = Behind(costly), Overtaking(rules)

    def next_items(most: int, aside: Sequence[Item]) -> Sequence[Item]:
        but = {*(item.identity for item in aside), *behind.waiting}
        if items := overtaking.next(settings.WAKEFUL_DISPATCH_BATCH, [*but, *(costly.held if costly else ())]):
            return within(items, rules.current(), most)
        items = overtaking.after(_next_items(but))
        return within(items, rules.current(), most, *([costly.wanted] if costly else [])) if items else []

    def again(item: Item) -> Sequence[Item]:
        rules.current()
        return read_these([item.identity])

    def _next_items(but: Set[Identity]) -> list[Item]:
        if costly is None:
            return read_items(settings.WAKEFUL_DISPATCH_BATCH, but)
        return sorted(
            [*answered(costly, but), *read_items(settings.WAKEFUL_DISPATCH_BATCH, [*but, *costly.held])],
            key=lambda item: item.seq,
        )

    return Careful(
        Work(
            next=next_items,
            again=again,
            run=lambda items, most: dispatch.dispatch_items(items, rules, most, behind, costly, stayers, beside),
            size=lambda items: sum(cost_of(item, rules.index) for item in items),
            give_up=lambda item, error: dispatch.give_up(item, rules, error, costly),
            identity=lambda item: item.identity,
            noun="event",
            alarm=EVENTS,
            hold=lambda aside: behind.hold(aside, rules.index),
            triggers=lambda item: frozenset(rule.id for rule in wanted_by(item, rules.index)),
            wait=lambda: ANSWERS if costly and costly.is_running else None,
        )
    )


def answered(costly: Costly, but: Set[Identity]) -> list[Item]:
    """Held events whose answers are there."""
    ready = [identity for identity in costly.ready() if identity not in but][: settings.WAKEFUL_DISPATCH_BATCH]
    items = read_these(ready) if ready else []
    costly.forget(set(ready) - {item.identity for item in items})
    return items


def windows_that_are_over(rules: Rules) -> Careful[Group]:
    """The work of closing windows."""

    def next_groups(most: int, aside: Sequence[Group]) -> Sequence[Group]:
        return close_windows.windows_over(most, aside)

    return Careful(
        Work(
            next=next_groups,
            again=lambda group: [group],
            run=lambda groups, _: close_windows.close_these(groups, rules),
            size=len,
            give_up=close_windows.give_up_window,
            identity=lambda group: group,
            noun="window",
            alarm=WINDOWS,
        )
    )


def absences(rules: Rules) -> Careful[UUID]:
    """The work of opening switches."""

    def next_timers(most: int, aside: Sequence[UUID]) -> Sequence[UUID]:
        rules.current()
        return fire.due(rules.switches, most, aside)

    return Careful(
        Work(
            next=next_timers,
            again=fire.still_due,
            run=lambda timers, _: dispatch.open_absences(timers, rules),
            size=len,
            give_up=lambda timer, _: Batch(dispatched=fire.put_off(timer)),
            identity=lambda timer: timer,
            noun="timer of a switch",
            alarm=ABSENCES,
        )
    )
