"""What a seed does: a place on the path, what goes wrong while a process is there, and how it gets there."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random


class Fault(StrEnum):
    KILL = "kill -9"
    KILL_ALL = "kill -9 of the whole worker"
    STOP = "SIGSTOP"
    STOP_ALL = "SIGSTOP of the whole worker, past its lease"
    CUT = "its database session cut"
    POSTGRES_KILLED = "PostgreSQL killed and started"
    POSTGRES_RESTARTED = "PostgreSQL restarted"
    REDIS_FLUSHED = "Redis flushed"
    REDIS_GONE = "Redis gone for seconds"


# What the process itself does at the point; during the others it stands still there.
ACTIONS = {
    Fault.KILL: "kill",
    Fault.KILL_ALL: "killall",
    Fault.STOP: "stop",
    Fault.STOP_ALL: "stopall",
    Fault.CUT: "cut",
}
EVERYWHERE = (Fault.KILL, Fault.STOP, Fault.CUT, Fault.POSTGRES_KILLED, Fault.POSTGRES_RESTARTED)
BY_BROKER = (Fault.REDIS_FLUSHED, Fault.REDIS_GONE)
OF_A_CHILD = (Fault.KILL_ALL, Fault.STOP_ALL)


class Need(StrEnum):
    """What must happen for a process to come to a point."""

    LOAD = "the load alone"
    LOST_CHILD = "a child that runs something is killed"
    LOST_WORKER = "a worker that runs something is killed"
    OVERDUE = "a run that is deaf to its timeout"
    CANCEL = "a running run is cancelled"
    REQUEUE = "a failed run is requeued"
    SIGTERM = "a worker gets SIGTERM and its run takes too long"
    LOST_LOOK = "a child is killed before it looks back"
    UNCERTAIN = "a child is killed over a call that may happen at most once"
    FORK = "a run is forked"


@dataclass(frozen=True, kw_only=True)
class Point:
    """A failpoint as one kind of process passes it. `child`: in a worker, it is a child that does."""

    name: str
    kind: str
    need: Need = Need.LOAD
    child: bool = False

    @property
    def faults(self) -> tuple[Fault, ...]:
        if self.kind in ("web", "beat"):
            return EVERYWHERE
        return (*EVERYWHERE, *BY_BROKER, *(OF_A_CHILD if self.child else ()))

    def __str__(self) -> str:
        who = "worker child" if self.child else "worker parent" if self.kind == "worker" else self.kind
        need = "" if self.need == Need.LOAD else f" ({self.need})"
        return f"{who} at {self.name}{need}"


def _points() -> Iterator[Point]:
    for name in ("before_accept", "after_accept"):
        yield Point(name=name, kind="web")
    yield Point(name="before_cancel_commit", kind="web", need=Need.CANCEL)
    yield Point(name="before_requeue_commit", kind="web", need=Need.REQUEUE)
    for name in ("before_settle_commit", "before_tick_commit", "after_tick_commit"):
        yield Point(name=name, kind="beat")
    for name in (
        "before_dispatch_commit", "after_dispatch_commit", "before_window_commit", "before_wake", "after_wake", "before_outbox_commit",
        "after_outbox_commit", "before_send", "after_send", "before_ring",
    ):  # fmt: skip
        yield Point(name=name, kind="dispatcher")
    for name in ("after_close", "after_terminate", "before_take_away_commit", "after_take_away_commit"):
        yield Point(name=name, kind="dispatcher", need=Need.LOST_WORKER)
    for name in (
        "after_claim", "in_body", "after_body", "before_commit", "after_commit", "before_record_commit",
        "after_record_commit", "before_hand_over",
    ):  # fmt: skip
        yield Point(name=name, kind="worker", child=True)
    yield Point(name="before_renew", kind="worker")
    for name in ("after_terminate", "before_take_away_commit", "after_take_away_commit"):
        yield Point(name=name, kind="worker", need=Need.LOST_CHILD)
    for name in ("after_fence", "after_stop"):
        yield Point(name=name, kind="worker", need=Need.CANCEL)
    yield Point(name="after_fence", kind="worker", need=Need.OVERDUE)
    yield Point(name="before_take_away_commit", kind="worker", need=Need.SIGTERM)


def _durable_points() -> Iterator[Point]:
    for name in (
        "after_step_body", "before_intent_commit", "after_intent_commit", "after_call", "before_step_commit",
        "after_step_commit", "after_wait_commit", "before_look_back", "after_look_back",
    ):  # fmt: skip
        yield Point(name=name, kind="worker", child=True)
    yield Point(name="before_waits_are_looked_up", kind="dispatcher")
    for name in ("before_look_back", "after_look_back"):
        yield Point(name=name, kind="dispatcher", need=Need.LOST_LOOK)
    for name in ("before_decide_commit", "after_decide_commit"):
        yield Point(name=name, kind="web")
    yield Point(name="before_resolve_commit", kind="web", need=Need.UNCERTAIN)
    yield Point(name="before_fork_commit", kind="web", need=Need.FORK)


def _shard_points() -> Iterator[Point]:
    """What a dispatcher has only with shards."""
    for name in ("before_shard_commit", "after_shard_commit"):
        yield Point(name=name, kind="dispatcher")


ATOMIC_POINTS = tuple(_points())
DURABLE_POINTS = tuple(_durable_points())
SHARD_POINTS = tuple(_shard_points())
POINTS = ATOMIC_POINTS + DURABLE_POINTS + SHARD_POINTS

# What is no matter of one point; each is a function of this name in `tests.chaos.specials`.
SPECIALS = (
    "a_neighbour_holds_runs", "a_neighbour_holds_keys", "a_neighbour_holds_the_agents_rows", "a_worker_an_hour_ahead",
    "a_worker_an_hour_behind", "postgres_killed_twice", "a_frozen_worker_thaws_after_its_successor",
    "everything_frozen", "everything_killed", "crowds_of_dispatchers_and_beats", "children_killed_again_and_again",
    "every_session_cut", "redis_gone_and_forgetful", "everything_replaced_in_order",
)  # fmt: skip
DURABLE_SPECIALS = ("people_decide_at_once",)
BROKER_SPECIALS = ("redis_hangs",)
DISPATCH_SPECIALS = ("the_database_refuses_runs", "a_notify_is_lost")


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """One seed's fault."""

    point: Point | None = None
    fault: Fault | None = None
    special: str = ""

    def __str__(self) -> str:
        return self.special.replace("_", " ") if self.special else f"{self.fault}: {self.point}"

    @property
    def sort(self) -> str:
        """What it counts as."""
        return self.special.replace("_", " ") or str(self.fault)


def _mixed(scenarios: list[Scenario]) -> list[Scenario]:
    return Random(3).sample(scenarios, len(scenarios))


def _at(points: Sequence[Point]) -> list[Scenario]:
    return [Scenario(point=point, fault=fault) for point in points for fault in point.faults]


# What is new stands behind: a seed stays what it was.
MATRIX: tuple[Scenario, ...] = (
    *_mixed([*_at(ATOMIC_POINTS), *[Scenario(special=special) for special in SPECIALS for _ in range(2)]]),
    *_mixed([*_at(DURABLE_POINTS), *[Scenario(special=special) for special in DURABLE_SPECIALS for _ in range(2)]]),
    *[Scenario(special=special) for special in (*BROKER_SPECIALS, *DISPATCH_SPECIALS) for _ in range(2)],
    *_at(SHARD_POINTS),
)


def scenario(seed: int) -> Scenario:
    return MATRIX[seed % len(MATRIX)]


def sample() -> Sequence[int]:
    """Seeds that together have every point, every special trouble, and every pair of a sort of process and a fault."""
    wanted = {pair for one in MATRIX for pair in _pairs(one)}
    chosen = []
    while wanted:
        best = max(range(len(MATRIX)), key=lambda seed: len(wanted & _pairs(MATRIX[seed])))
        chosen.append(best)
        wanted -= _pairs(MATRIX[best])
    return chosen


def _pairs(one: Scenario) -> set[tuple[str, str]]:
    if one.point is None or one.fault is None:
        return {("special", one.special)}
    return {
        (one.point.kind + " child" * one.point.child, one.fault),
        ("point", str(one.point)),
    }
