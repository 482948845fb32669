"""Pure: the clock of one key of a switch.

- Without an event that begins the time, each awaited event begins it again, at its arrival.
- With one, that event begins the time, and an awaited event that is not older ends it, by the times of the events: also if they
  arrive the other way round. Of several events that wait for an end, the oldest counts.
- With recurring deadlines, the timer waits for the next deadline for which the newest event is too early, or, after a missed one or
  from its beginning, for the next one at all. Events count by their arrival. `due_at` is the deadline, without the grace.
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from uuid import UUID, uuid4

from uuid_utils.compat import uuid7

from triggers.matching.pending import Item
from triggers.switches.switch import FAIL, START, SUCCESS, Switch

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
MOMENT = timedelta(microseconds=1)


class Reason(StrEnum):
    ABSENT = "absent"
    FAILED = "failed"  # a ping reported a failure
    OVERRAN = "overran"  # a /start without its end


@dataclass(frozen=True, kw_only=True)
class Transition:
    """An episode that opens or closes. `item` is the event that did it; None: the clock did. `at`: when, by the times of the
    events."""

    timer: "Timer"
    is_open: bool
    at: datetime
    due_at: datetime | None
    reason: Reason
    episode: int
    item: Item | None = None
    opened_id: UUID | None = None
    since: datetime | None = None
    seen_at: datetime | None = None
    last_id: UUID | None = None
    missed: int | None = None  # recurring deadlines that have passed without the event since the last look
    event_id: UUID = field(default_factory=uuid7)  # id of the event that records the episode


@dataclass(kw_only=True)
class Timer:
    """A row of SwitchTimer; see there."""

    source_id: UUID
    key: str = ""
    id: UUID = field(default_factory=uuid4)
    state: str = "idle"
    episode: int = 0
    since: datetime | None = None
    since_id: UUID | None = None
    latest_at: datetime | None = None
    latest_id: UUID | None = None
    seen_at: datetime | None = None
    seen_id: UUID | None = None
    began_at: datetime | None = None
    due_at: datetime | None = None
    look_at: datetime | None = None
    opened_at: datetime | None = None
    opened_id: UUID | None = None
    reason: str = ""
    is_tainted: bool = False

    def see(self, switch: Switch, item: Item, now: datetime) -> list[Transition]:
        """Note that the awaited event, or any ping, has arrived."""
        if switch.is_ping and item.type != SUCCESS:
            return self._ping(switch, item, now)
        at = _time_of(item, now) if switch.started else self._seen_at(item, now)
        if switch.started is None:
            is_newest = self.seen_at is None or at >= self.seen_at or self.seen_at > now  # the clock was set back
            if not is_newest:
                return []
            return [*self.miss(switch, at, now), *self._return(switch, item, at)]
        return self._answer(switch, item, at, now)

    def begin(self, switch: Switch, item: Item, now: datetime) -> None:
        """Note an event that begins the time."""
        at = _time_of(item, now)
        self.is_tainted |= item.is_tainted
        if self.seen_at is not None and at <= self.seen_at:
            return
        if self.state == "idle" or (self.state == "waiting" and self.since is not None and at < self.since):
            if self.state == "waiting":
                self._note_latest(self.since, self.since_id)
            self._wait(switch, at, item.event_id, _arrival_of(item, now))
        else:
            self._note_latest(at, item.event_id)

    def resume(self, switch: Switch, now: datetime) -> None:
        """Begin the time now: the switch is new, or enabled again."""
        self._wait(switch, now, None, now)

    def rest(self) -> None:
        """Stop looking at the timer: it is open, or its switch is off."""
        self.look_at = None
        if self.state == "waiting":
            self.state, self.since, self.since_id, self.due_at, self.began_at = "idle", None, None, None, None

    def put_off(self, switch: Switch, now: datetime) -> bool:
        """Whether active hours postpone a due timer. The stored time may be too early; see `arm`."""
        if self.since is None or self.due_at is None or self.began_at is not None:
            return False
        self.due_at = self.look_at = max(self.due_at, switch.due(self.since))
        return self.due_at > now

    def expect(self, switch: Switch, now: datetime, *, is_resumed: bool = False) -> None:
        """Wait for its recurring deadline: the switch is new or has others, or the clock was set back. `is_resumed`: it is enabled
        again, and expects nothing of the time in which it was not."""
        if self.state == "idle" or self.since is None:
            self.resume(switch, now)
        if is_resumed or (self.since is not None and self.since > now):
            self.since, self.since_id = now, None
        deadline = deadline_of(self, switch)
        self.look_at = deadline + switch.grace
        if self.state == "waiting":
            self.due_at = deadline

    def miss(self, switch: Switch, until: datetime, now: datetime) -> list[Transition]:
        """Open an episode if a recurring deadline passed before `until`: of several, for the newest."""
        last = newest_missed(self, switch, until)
        if last is None or switch.recurring is None or self.since is None:
            return []
        count = switch.recurring.count(deadline_of(self, switch), last)
        begin, _ = switch.recurring.ended_by(last)
        opened = self.open(last, now, Reason.ABSENT, since=max(begin, self.since), missed=count)
        self.look_at = deadline_of(self, switch) + switch.grace
        return [opened]

    def open(
        self,
        at: datetime,
        now: datetime,
        reason: Reason,
        item: Item | None = None,
        *,
        since: datetime | None = None,
        missed: int | None = None,
    ) -> Transition:
        """Open an episode; `at`: when the timer was due."""
        self.since = since or self.since
        self.state, self.episode, self.opened_at, self.reason = "open", self.episode + 1, now, reason.value
        self.due_at, self.look_at, self.began_at = at, None, None
        opened = Transition(
            timer=self,
            is_open=True,
            at=at,
            due_at=at,
            reason=reason,
            episode=self.episode,
            item=item,
            since=self.since,
            seen_at=self.seen_at,
            last_id=self.seen_id or self.since_id,
            missed=missed,
        )
        self.opened_id = opened.event_id
        return opened

    # Switches without an event that begins the time

    def _seen_at(self, item: Item, now: datetime) -> datetime:
        """The event's arrival; but an event that was committed only after the look that opened the timer counts from
        now, as it was absent until then.
        """
        at = _arrival_of(item, now)
        was_looked_for = self.state == "open" and self.reason != Reason.FAILED
        return now if was_looked_for and self.opened_at is not None and at <= self.opened_at else at

    def _return(self, switch: Switch, item: Item, at: datetime) -> list[Transition]:
        closed = self._close(item, at)
        self.seen_at, self.seen_id, self.is_tainted = at, item.event_id, item.is_tainted
        self._wait(switch, at, item.event_id, at)
        return closed

    def _ping(self, switch: Switch, item: Item, now: datetime) -> list[Transition]:
        at = _arrival_of(item, now)
        if item.type == FAIL and self.state != "open":
            return [self.open(at, now, Reason.FAILED, item)]
        if item.type == START and self.state == "waiting" and self.due_at is not None:
            self.began_at = at
            self.due_at = self.look_at = min(self.due_at, at + switch.grace)
        return []

    # Switches with one

    def _answer(self, switch: Switch, item: Item, at: datetime, now: datetime) -> list[Transition]:
        is_newest = self.seen_at is None or at >= self.seen_at
        closed: list[Transition] = []
        if is_newest:
            self.seen_at, self.seen_id = at, item.event_id
        self.is_tainted |= item.is_tainted
        if self.state == "idle":
            self.look_at = now + switch.forgets_after
        elif self.since is not None and at >= self.since:
            closed = self._close(item, at)
            latest_at, latest_id = self.latest_at, self.latest_id
            self.state, self.since, self.since_id, self.due_at = "idle", None, None, None
            self.latest_at = self.latest_id = None
            self.look_at = now + switch.forgets_after
            if latest_at is not None and latest_at > at:
                self._wait(switch, latest_at, latest_id, None)
        return closed

    def _note_latest(self, at: datetime | None, id: UUID | None) -> None:
        if at is not None and (self.latest_at is None or at > self.latest_at):
            self.latest_at, self.latest_id = at, id

    # Both

    def _wait(self, switch: Switch, since: datetime, id: UUID | None, arrived_at: datetime | None) -> None:
        self.state, self.since, self.since_id, self.began_at = "waiting", since, id, None
        if switch.recurring:
            self.due_at = deadline_of(self, switch)
            self.look_at = self.due_at + switch.grace
        else:
            self.due_at = self.look_at = switch.due(since, arrived_at)

    def _close(self, item: Item, at: datetime) -> list[Transition]:
        if self.state != "open":
            return []
        closed = Transition(
            timer=self,
            is_open=False,
            at=at,
            due_at=self.due_at,
            reason=Reason(self.reason),
            episode=self.episode,
            item=item,
            opened_id=self.opened_id,
            since=self.since,
            seen_at=at,
            last_id=item.event_id,
        )
        self.opened_at, self.opened_id, self.reason = None, None, ""
        return [closed]


def deadline_of(timer: Timer, switch: Switch) -> datetime:
    """The recurring deadline that the timer waits for."""
    assert switch.recurring and timer.since is not None  # noqa: S101  (the caller has looked)
    if timer.state == "open" and timer.due_at is not None:
        return switch.recurring.ending_after(max(timer.due_at, timer.since))[1]
    if timer.since_id is None:
        return switch.recurring.ending_after(timer.since)[1]
    return switch.recurring.beginning_after(timer.since)[1]


def newest_missed(timer: Timer, switch: Switch, until: datetime) -> datetime | None:
    """The newest recurring deadline that passed before `until` without the event; None: the timer has not missed any."""
    if timer.state == "idle" or switch.recurring is None or deadline_of(timer, switch) + switch.grace >= until:
        return None
    return switch.recurring.ended_by(until - switch.grace - MOMENT)[1]  # what comes at the deadline is in time


def _arrival_of(item: Item, now: datetime) -> datetime:
    return min(item.received_at or now, now)


def _time_of(item: Item, now: datetime) -> datetime:
    """The time of an event, limited to the past: a sender's clock that runs ahead must not postpone a due timer. Times
    too long ago to be plausible are limited as well.
    """
    return max(min(item.time, _arrival_of(item, now)), EARLIEST)
