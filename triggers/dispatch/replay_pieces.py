"""The dispatcher's part of replays: turn the next events into redispatches, at the rate; finish what was cancelled."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from uuid import UUID

import structlog
from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from agents.kernel.backoff import backoff
from runs import keys
from runs.db.sql import database_now, execute
from runs.models import UNPARSED, Run
from runs.states import RunStatus
from runs.transitions.stop import stop
from triggers.dispatch.rules import Rules
from triggers.dispatch_lock import try_lock
from triggers.events.order import Horizon, in_order, scanned
from triggers.events.search import Search
from triggers.matching.index import Index
from triggers.models import Event, Redispatch, Replay, Window

log = structlog.get_logger(__name__)

PIECE = 500  # events at once, and the maximum of redispatches of a replay that wait for dispatch
STEP = 0.25  # seconds between two pieces
BURST = timedelta(seconds=1)  # a longer delay is not made up for
SCAN = 2_000  # events read for one piece: other work waits meanwhile
STOPPED = 50  # runs of a cancelled replay that are stopped at once
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0  # seconds, before a replay that failed is tried again
NEXT_DUE = """
SELECT min(look_at) - clock_timestamp() FROM triggers_replay WHERE status IN ('running', 'cancelling')
"""
DROP_HELD = """
UPDATE triggers_decision SET outcome = 'dropped', reason = %(reason)s::text
WHERE outcome = 'held' AND replay_id = %(replay)s::uuid
"""
Status = Replay.Status


def advance(rules: Rules, horizon: Horizon | None = None) -> int:
    """Take the next piece of the replay that is due first, under the dispatch lock; returns the number of its events. A replay
    that fails is put off, and the others go on."""
    with transaction.atomic():
        if not try_lock():
            return 0
        due = Replay.objects.filter(status__in=Replay.UNDERWAY, look_at__lte=database_now()).order_by("look_at")
        replay = due.select_for_update(skip_locked=True).first()
        if replay is None:
            return 0
        try:
            with transaction.atomic():
                if replay.status == Status.CANCELLING:
                    return _stop_runs(replay)
                return Piece(replay=replay, rules=rules, horizon=horizon or Horizon()).take()
        except Exception as error:
            log.exception("replay.not_advanced", replay=str(replay.pk))
            _put_off(replay, error)
            return 0


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """The number of events that the rate allows now, the next of them since `due_at`."""

    events: int
    due_at: datetime

    @classmethod
    def at(cls, now: datetime, replay: Replay) -> "Allowance":
        due_at = max(replay.due_at, now - BURST)
        return cls(events=int((now - due_at).total_seconds() * replay.rate) + 1 if due_at <= now else 0, due_at=due_at)


def pieces_apart(rate: float) -> float:
    """Seconds between two pieces: STEP, or the time between two events."""
    return max(int(rate * STEP), 1) / rate


@dataclass(frozen=True, kw_only=True)
class Piece:
    replay: Replay
    rules: Rules
    horizon: Horizon

    def take(self) -> int:
        now = database_now()
        allowed = Allowance.at(now, self.replay)
        room = min(PIECE - waiting(self.replay), allowed.events)
        if room <= 0:  # the dispatcher is behind
            self._move(look_at=now + timedelta(seconds=STEP))
            return 0
        reached = self.horizon.advance()
        until = reached if self.replay.until is None else self.replay.until
        end = min(reached, until)
        events, passed = self._next(room, end)
        self._redispatch(events)
        due_at = allowed.due_at + timedelta(seconds=len(events) / self.replay.rate)
        if len(events) == room:
            look_at = due_at + timedelta(seconds=pieces_apart(self.replay.rate) - 1 / self.replay.rate)
            self._move(passed=events[-1].seq, due_at=due_at, look_at=look_at)
        elif passed < end:  # a gap in the range: look further on at once
            self._move(passed=passed, due_at=due_at, look_at=now)
        elif passed < until:  # a transaction is open that may commit an event of the range
            self._move(passed=passed, due_at=due_at, look_at=now + timedelta(seconds=STEP))
        else:
            self._end_or_wait(now, passed, due_at)
        return len(events)

    def _next(self, most: int, end: int) -> tuple[list[Event], int]:
        """The next events, locked, and the last `seq` that was looked at. They are locked as in retention, which either sees their
        redispatches or was earlier."""
        search = Search.load(self.replay.search, self.replay.start, self.replay.end)
        after = search.above if self.replay.passed is None else self.replay.passed
        last = max(scanned(after, end, SCAN), after)
        found = search.of(Event.objects.filter(seq__gt=after, seq__lte=last))
        columns = ("id", "seq", "type", "target_id", "payload_removed_at", "source", "source__slug")
        locked = found.select_related("source").only(*columns).select_for_update(no_key=True, of=("self",))
        return in_order(locked, most), last

    def _redispatch(self, events: Sequence[Event]) -> None:
        index, chosen = self.rules.current(), set(self.replay.triggers)
        heard = cache(lambda source, type, target: heard_by(index, source, type, target, chosen))
        gone = unheard = 0
        wanted: list[tuple[Event, UUID | None]] = []
        for event in events:
            listening = heard(event.source.slug, event.type, event.target_id)
            if event.payload_removed_at:
                gone += 1
            elif not listening:
                unheard += 1
            else:
                wanted += [(event, trigger_id) for trigger_id in (listening if chosen else [None])]
        by, replay_id = f"replay {self.replay.pk}", self.replay.pk
        Redispatch.objects.bulk_create(
            Redispatch(event=event, trigger_id=trigger_id, replay_id=replay_id, by=by) for event, trigger_id in wanted
        )
        self.replay.dispatched += len(events) - gone - unheard
        self.replay.without_payload += gone
        self.replay.unheard += unheard

    def _end_or_wait(self, now: datetime, passed: int, due_at: datetime) -> None:
        """Nothing is left to take. It has ended when all that was taken is dispatched."""
        if waiting(self.replay):
            self._move(passed=passed, due_at=due_at, look_at=now + timedelta(seconds=STEP))
        else:
            self._move(passed=passed, status=Status.DONE, ended_at=now)

    def _move(self, **columns: object) -> None:
        replay = self.replay
        counts = {name: getattr(replay, name) for name in ("dispatched", "without_payload", "unheard")}
        Replay.objects.filter(pk=replay.pk).update(**counts, **columns, failures=0, error="")


def waiting(replay: Replay) -> int:
    """The replay's redispatches that wait for dispatch, at most PIECE."""
    return Redispatch.objects.filter(replay_id=replay.pk, dispatched_at=None)[:PIECE].count()


def heard_by(index: Index, source: str, type: str, target: UUID | None, chosen: Collection[UUID]) -> list[UUID]:
    """The triggers that listen to events of a source and type, or their target; only `chosen` ones, if any are."""
    heard = [rule.id for rule in index.candidates(source, type)] if target is None else [target]
    return [id for id in heard if not chosen or id in chosen]


def _stop_runs(replay: Replay) -> int:
    """Cancel a few of its queued runs; those without a slot first, so that no freed slot goes to another of them. It has ended when
    there are none, and no window of it is open."""
    execute(DROP_HELD, {"replay": replay.pk, "reason": "its replay was cancelled"})
    queued = Run.objects.filter(replay_id=replay.pk, status=RunStatus.QUEUED).defer(*UNPARSED)
    runs = list(queued.order_by(F("slot").asc(nulls_first=True), "-seq")[:STOPPED])
    locked = keys.try_lock(run.key for run in runs if run.key)
    stopped = sum(
        stop(run, f"replay {replay.pk}, which was cancelled") for run in runs if not run.key or run.key in locked
    )
    this = Replay.objects.filter(pk=replay.pk)
    if runs or Window.objects.filter(replay_id=replay.pk).exists():
        pause = 0.0 if stopped else 1.0
        this.update(look_at=database_now() + timedelta(seconds=pause), failures=0, error="")
    else:
        this.update(status=Status.CANCELLED, ended_at=Now())
    return stopped


def _put_off(replay: Replay, error: Exception) -> None:
    pause = backoff(FIRST_PAUSE, LONGEST_PAUSE, replay.failures + 1)
    Replay.objects.filter(pk=replay.pk).update(
        failures=F("failures") + 1 if replay.failures < 1000 else replay.failures,
        error=f"{type(error).__name__}: {error}"[:500],
        look_at=database_now() + timedelta(seconds=pause),
    )
