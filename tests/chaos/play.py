"""One seed: a load, a fault in the midst of it, what an operator would do about it, and then the checker."""

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from config.health.verify import Report
from tests.chaos import specials
from tests.chaos.deciding import decide, settle
from tests.chaos.lab import Lab, demand_that_others_go_on, servers_of, thaw
from tests.chaos.load import Senders, lab_load, users_load
from tests.chaos.meddling import meddle
from tests.chaos.needs import MEET, NothingRan
from tests.chaos.scenarios import ACTIONS, Fault, Need, Point, Scenario

REACH = 25.0  # seconds in which a process comes to a point, or the seed counts as one that missed it
TICKS = 5  # seconds
# Points that a seed reaches once, if at all.
RARE = (
    "before_settle_commit",
    "before_hand_over",
    "before_send",
    "after_send",
    "holding_rows",
    "before_decide_commit",
    "after_decide_commit",
    "before_look_back",
    "after_look_back",
)
DRAIN = 60.0


@dataclass(frozen=True, kw_only=True)
class Played:
    """What a seed came to."""

    seed: int
    scenario: Scenario
    struck: bool
    seconds: float
    failures: list[str]
    report: Report
    restarts: int
    done: Mapping[str, int]

    @property
    def holds(self) -> bool:
        return self.report.holds and not self.failures

    def __str__(self) -> str:
        state = "ok" if self.holds else "VIOLATED"
        return (
            f"seed {self.seed:4} {self.seconds:5.1f} s  {state:8} {'' if self.struck else '(missed) '}{self.scenario}"
        )


@dataclass
class Totals:
    """What all seeds came to."""

    seeds: int = 0
    missed: list[int] = field(default_factory=list)
    violated: list[int] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    numbers: Counter[str] = field(default_factory=Counter)

    def add(self, played: Played) -> None:
        self.seeds += 1
        if played.struck:
            self.faults[played.scenario.sort] += 1
        else:
            self.missed.append(played.seed)
        if not played.holds:
            self.violated.append(played.seed)
        counts = played.report.counts
        self.numbers.update(
            {
                "events accepted": counts["events"],
                "duplicates refused": counts["duplicates"],
                "runs": sum(counts["runs"].values()),
                "runs that succeeded": counts["runs"].get("succeeded", 0),
                **played.done,
                "attempts lost": counts["attempts"].get("lost", 0),
                "attempts released": counts["attempts"].get("released", 0),
                "attempts failed": counts["attempts"].get("failed", 0),
                "processes started again": played.restarts,
                "violations": sum(len(finding.violations) for finding in played.report.violated) + len(played.failures),
            }
        )


def play(lab: Lab, seed: int, scenario: Scenario, *, events: Path | None = None, drain: float = DRAIN) -> Played:
    random = Random(seed)
    began, restarts = time.monotonic(), lab.restarts
    senders = lab.senders(seed)
    if scenario.point and scenario.fault:
        lab.points[scenario.point.kind].arm(scenario.point.name, action_of(scenario.point, scenario.fault, random))
    if lab.is_lab:
        lab.make_ticks(seed, TICKS)
    load = lab_load(seed, random) if events is None else users_load(seed, events, random)
    for deliveries in load:
        senders.send(deliveries, pause=lambda: random.uniform(0, 0.06))

    if lab.is_lab:
        meddle(lab, senders, random)
        decide(lab, senders, random)

    try:
        if scenario.point and scenario.fault:
            struck = strike(lab, senders, scenario.point, scenario.fault, random)
        else:
            struck = bool(getattr(specials, scenario.special)(lab, senders, random))
    except NothingRan:
        struck = False

    lab.wait_until(senders.is_done, 120)
    senders.close()
    lab.wait_ready()
    settle(lab, senders, drain)
    report = lab.verify(senders.since)
    failures = [*senders.failures, *mended(lab)]
    return Played(
        seed=seed,
        scenario=scenario,
        struck=struck,
        seconds=time.monotonic() - began,
        failures=failures,
        report=report,
        restarts=lab.restarts - restarts,
        done=lab.done(senders.since),
    )


def action_of(point: Point, fault: Fault, random: Random) -> str:
    """What the process does there, and with its how-manieth visit."""
    visit = random.choice([1, 1, 2, 3]) if point.need == Need.LOAD and point.name not in RARE else 1
    return f"{ACTIONS.get(fault, 'wait')}@{visit}"


def strike(lab: Lab, senders: Senders, point: Point, fault: Fault, random: Random) -> bool:
    """Have a process meet the fault at the point; False: none came there."""
    try:
        MEET[point.need](lab, senders)
        pid = lab.wait_until(lambda: lab.points[point.kind].hit(point.name), REACH)
        if pid:
            follow_up(lab, senders, point, fault, pid, random)
        return bool(pid)
    finally:
        lab.points[point.kind].release(point.name)


def follow_up(lab: Lab, senders: Senders, point: Point, fault: Fault, pid: int, random: Random) -> None:
    """What goes on around the process that was struck."""
    postgres, valkey = servers_of(lab)
    match fault:
        case Fault.STOP | Fault.STOP_ALL:
            keep_frozen(lab, senders, point, fault)
            thaw(pid, group=fault == Fault.STOP_ALL)
        case Fault.POSTGRES_KILLED:
            postgres.kill()
            time.sleep(random.uniform(0, 0.5))
            go_on_before = random.random() < 0.5
            if go_on_before:
                lab.points[point.kind].release(point.name)
                time.sleep(0.3)
            postgres.start()
        case Fault.POSTGRES_RESTARTED:
            postgres.stop()
            postgres.start()
        case Fault.REDIS_FLUSHED:
            valkey.flush()
        case Fault.REDIS_GONE:
            valkey.kill()
            lab.points[point.kind].release(point.name)
            lab.wait_until(lambda: None, random.uniform(1, 4))
            valkey.start()


def keep_frozen(lab: Lab, senders: Senders, point: Point, fault: Fault) -> None:
    """As long as it takes the others to go on without it; a lone process, until PostgreSQL has lost patience with it."""
    if fault == Fault.STOP_ALL:
        demand_that_others_go_on(lab, senders)
    elif lab.crew.get(point.kind, 0) > 1 and point.kind != "worker":
        lab.wait_until(lambda: lab.left() == 0, 12)
    else:
        lab.wait_until(lambda: None, 6.5 if point.kind == "dispatcher" else lab.lease.total_seconds() + 1)


def mended(lab: Lab) -> list[str]:
    """The dispatcher's own look for keys that were forgotten must find none: what it mends is a bug."""
    found: list[str] = []
    for process in lab.of("dispatcher"):
        text = process.log.read_text(errors="replace")
        seen: dict[Any, int] = lab.__dict__.setdefault("read", {})
        found += [line for line in text[seen.get(process.log, 0) :].splitlines() if "keys.mended" in line]
        seen[process.log] = len(text)
    return found
