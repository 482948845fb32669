"""The ground moves: what changes by itself wakes agents, each change once, while the processes that watch it are killed.

Each kind of source is a `Ground`: what it is set up with, how it moves, and when all events are there. One stack watches all of them; its
sources processes and its dispatcher are killed again and again meanwhile, and `manage.py verify` has the last word. To add a kind,
write its class in tests/support/grounds and add it to GROUNDS; its agent stands in tests/userapps/ground.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.grounds.absences import Absences
from tests.support.grounds.episodes import Drift, NumberInJson, NumberOfQuery
from tests.support.grounds.files import Files
from tests.support.grounds.foreign_rows import ForeignRows
from tests.support.grounds.ground import Ground
from tests.support.grounds.rows import Rows
from tests.support.points import Points
from tests.support.stack import ROOT, Process, StackMaker, dead, eventually

pytestmark = pytest.mark.chaos

GROUNDS: list[type[Ground]] = [Files, Rows, ForeignRows, Drift, NumberInJson, NumberOfQuery, Absences]
# Where they die; empty: at any moment.
OF_WATCHERS = ("source_fenced", "", "source_recorded")
OF_DISPATCHER = ("before_absence_commit", "after_absence_commit")
DIES_AFTER = 5.0  # seconds after all are ready
UNDONE = """
SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL
UNION ALL SELECT 1 FROM runs_run WHERE status IN ('queued', 'running') UNION ALL SELECT 1 FROM runs_outboxmessage LIMIT 1
"""


def test_whatever_moves_is_reported_once_while_its_watchers_are_killed(make_stack: StackMaker, tmp_path: Path) -> None:
    points = Points(tmp_path / "points")
    grounds = [ground(_folder(tmp_path, ground)) for ground in GROUNDS]
    env = {"WAKEFUL_APPS": "ground", "PYTHONPATH": f"{ROOT / 'tests' / 'userapps'}:{ROOT}", **points.env}
    stack = make_stack(env={**env, **{name: value for ground in grounds for name, value in ground.env.items()}})
    stack.manage("sync_agents")
    with ExitStack() as kept:
        for ground in grounds:
            kept.enter_context(ground).prepare(stack)
        stack.up(concurrency=2)
        dispatchers = [process for process in stack.processes if process.kind == "dispatcher"]
        watchers = [stack.start("sources") for _ in range(2)]

        killers = [Killer(watchers, points, OF_WATCHERS), Killer(dispatchers, points, OF_DISPATCHER)]
        with ThreadPoolExecutor(len(grounds)) as threads:
            moved = [threads.submit(ground.move, stack) for ground in grounds]
            while not all(each.done() for each in moved):
                for killer in killers:
                    killer.look()
                time.sleep(0.1)
        for each in moved:
            each.result()

        def is_over() -> bool:
            for killer in killers:
                killer.revive()
            return all(ground.is_complete(stack) for ground in grounds) and not stack.query(UNDONE)

        eventually(is_over)
        for ground in grounds:
            ground.check(stack)
        stack.manage("verify", "--drained")
        assert all(set(killer.deaths) == set(killer.places) for killer in killers)


class Killer:
    """The processes die in turn, at these places and by kill -9 at any moment, and are started again. By the main thread: they end
    with the thread that has started them."""

    def __init__(self, processes: Sequence[Process], points: Points, places: Sequence[str]) -> None:
        self.processes, self.points, self.places = processes, points, places
        self.deaths: list[str] = []
        self.is_armed = False
        self.not_before = 0.0

    @property
    def place(self) -> str:
        return self.places[len(self.deaths) % len(self.places)]

    def look(self) -> None:
        self.revive()
        if not all(process.is_ready() for process in self.processes):
            self.not_before = time.monotonic() + DIES_AFTER
        elif not self.is_armed and time.monotonic() >= self.not_before:
            self._kill()

    def revive(self) -> None:
        """Start again those that have died."""
        if ended := dead(self.processes):
            if self.is_armed:
                self.points.release(self.place)
            self.is_armed = False
            self.deaths.append(self.place)
            for process in ended:
                process.restart(wait=False)

    def _kill(self) -> None:
        if self.place:
            self.points.arm(self.place, "kill")
            self.is_armed = True
        else:
            self.processes[len(self.deaths) % len(self.processes)].kill()


def _folder(tmp_path: Path, ground: type[Ground]) -> Path:
    folder = tmp_path / ground.__name__.lower()
    folder.mkdir()
    return folder
