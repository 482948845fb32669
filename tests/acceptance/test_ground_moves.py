"""The ground moves: what changes by itself wakes agents, each change once, while the processes that watch it are killed.

Each kind of source is a `Ground`: what it is set up with, how it moves, and when all of it is told. One stack watches all of them; its
sources processes are killed again and again meanwhile, and `manage.py verify` has the last word. To add a kind, write its class and
add it to GROUNDS; its agent stands in tests/userapps/ground.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from threading import Event, Thread

import psycopg
import pytest

from tests.support.moving_files import MovingFiles, told
from tests.support.points import Points
from tests.support.stack import ROOT, Process, Stack, StackMaker, eventually

pytestmark = pytest.mark.chaos

DEATHS = ("source_fenced", "", "source_recorded")  # where a batch is recorded; empty: at any moment
DIES_AFTER = 5.0  # seconds after the last death


class Ground(ABC):
    """Something that changes by itself."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def env(self) -> dict[str, str]:
        """Settings of the stack, read by its agents as well."""
        return {}

    def prepare(self, stack: Stack) -> None:  # noqa: B027  (most need only what their agent declares)
        """Before the processes start; the triggers and sources that agents declare are there."""

    @abstractmethod
    def move(self, stack: Stack) -> None:
        """Change, and wait where a change must be told before the next one. In a thread of its own."""

    @abstractmethod
    def is_told(self, stack: Stack) -> bool:
        """Whether every change is an event."""

    @abstractmethod
    def check(self, stack: Stack) -> None:
        """When all runs are over: each change is told exactly once, and its run has seen it."""


class Files(Ground):
    """A directory: files arrive, slowly and at once, are replaced, truncated, renamed and removed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.place = folder / "in"
        self.place.mkdir()
        self.files = MovingFiles(self.place, 200)

    @property
    def env(self) -> dict[str, str]:
        return {"GROUND_FILES": str(self.place), "WAKEFUL_FILE_ROOTS": str(self.place)}

    def move(self, stack: Stack) -> None:
        self.files.arrive()
        eventually(lambda: self.is_told(stack))
        self.files.move()

    def is_told(self, stack: Stack) -> bool:
        return not self.files.missing(told(stack.query))

    def check(self, stack: Stack) -> None:
        assert told(stack.query) == self.files.expected
        [row] = stack.query(
            "SELECT count(*) AS runs, count(*) FILTER (WHERE status = 'succeeded') AS succeeded FROM runs_run WHERE agent = 'files'"
        )
        assert row["runs"] == row["succeeded"] == sum(self.files.expected.values())


class Rows(Ground):
    """Rows of a table of ours: bulk statements, a transaction that is rolled back, and a session that is ended within one."""

    count = 100

    def move(self, stack: Stack) -> None:
        with psycopg.connect(stack.database_url, autocommit=True) as session:
            session.execute(f"INSERT INTO auth_group (name) SELECT 'row ' || n FROM generate_series(1, {self.count}) n")
            with session.transaction(force_rollback=True):
                session.execute("UPDATE auth_group SET name = name || ' lost' WHERE name LIKE 'row %'")
            with psycopg.connect(stack.database_url) as other, suppress(psycopg.OperationalError):
                other.execute("UPDATE auth_group SET name = name || ' lost' WHERE name LIKE 'row %'")
                session.execute("SELECT pg_terminate_backend(%s)", [other.info.backend_pid])
                other.commit()
            session.execute("UPDATE auth_group SET name = name || ' kept' WHERE name LIKE 'row %'")

    def is_told(self, stack: Stack) -> bool:
        return len(stack.query("SELECT 1 FROM triggers_event WHERE type LIKE 'db.auth.group.%%'")) >= 2 * self.count

    def check(self, stack: Stack) -> None:
        found = stack.query(
            "SELECT type, data->'new'->>'name' AS name FROM triggers_event WHERE type LIKE 'db.auth.group.%%' ORDER BY seq"
        )
        made = [("db.auth.group.insert", f"row {n}") for n in range(1, self.count + 1)]
        kept = [("db.auth.group.update", f"row {n} kept") for n in range(1, self.count + 1)]
        assert [(row["type"], row["name"]) for row in found[: self.count]] == made
        assert sorted((row["type"], row["name"]) for row in found[self.count :]) == sorted(kept)
        runs = stack.query(
            "SELECT result->'changed' AS changed FROM runs_run WHERE agent = 'rows' AND status = 'succeeded'"
        )
        assert sorted(str(run["changed"]) for run in runs) == sorted(
            [str([])] * self.count + [str(["name"])] * self.count
        )


GROUNDS: list[type[Ground]] = [Files, Rows]


def test_whatever_moves_is_told_once_while_its_watchers_are_killed(make_stack: StackMaker, tmp_path: Path) -> None:
    points = Points(tmp_path / "points")
    grounds = [ground(_folder(tmp_path, ground)) for ground in GROUNDS]
    env = {"WAKEFUL_APPS": "ground", "PYTHONPATH": f"{ROOT / 'tests' / 'userapps'}:{ROOT}"}
    env |= {"WAKEFUL_LEASE": "2s", "WAKEFUL_LEASE_RENEW": "500ms", "WAKEFUL_MAX_DEPTH": "8"}
    stack = make_stack(env={**env, **{name: value for ground in grounds for name, value in ground.env.items()}})
    stack.manage("sync_agents")
    for ground in grounds:
        ground.prepare(stack)
    stack.up(concurrency=2)
    watchers = [stack.start("sources", env=points.env) for _ in range(2)]

    with killing(watchers, points) as deaths:
        with ThreadPoolExecutor(len(grounds)) as threads:
            for moved in [threads.submit(ground.move, stack) for ground in grounds]:
                moved.result()
        for ground in grounds:
            eventually(lambda: ground.is_told(stack))  # noqa: B023  (called at once)

    eventually(lambda: not stack.query("SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL LIMIT 1"))
    eventually(lambda: not stack.query("SELECT 1 FROM runs_run WHERE status IN ('queued', 'running') LIMIT 1"))
    for ground in grounds:
        ground.check(stack)
    stack.manage("verify", "--drained")
    assert len(deaths) >= len(DEATHS)


@contextmanager
def killing(watchers: list[Process], points: Points) -> Iterator[list[str]]:
    """Processes die in turn, where a batch is recorded and by kill -9 at any moment, and are started again."""
    deaths: list[str] = []
    is_over = Event()

    def kill() -> None:
        for death in cycle(DEATHS):
            if death:
                points.arm(death, "kill")
            else:
                watchers[len(deaths) % len(watchers)].kill()
            while not (dead := [watcher for watcher in watchers if not watcher.is_alive()]):
                if is_over.wait(0.1):
                    points.release_all()
                    return
            deaths.append(death or "at any moment")
            points.release_all()
            for watcher in dead:
                watcher.restart(wait=False)
            if is_over.wait(DIES_AFTER):
                return

    thread = Thread(target=kill)
    thread.start()
    try:
        yield deaths
    finally:
        is_over.set()
        thread.join()


def _folder(tmp_path: Path, ground: type[Ground]) -> Path:
    folder = tmp_path / ground.__name__.lower()
    folder.mkdir()
    return folder
