"""Files are reported once each, whole, while the process that watches them is killed; a large tree is scanned in bounded memory."""

import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.test import override_settings

from tests.support.moving_files import MovingFiles, file_events
from tests.support.points import Points
from tests.support.stack import Stack, StackMaker, dead, eventually
from triggers.sources.edit import create_source

pytestmark = pytest.mark.chaos

FILES = 5_000
# In turn: in the transaction that records a batch, and after its commit.
DEATHS = ("source_fenced", "source_recorded", "source_fenced", "source_recorded")
TREE = 200_000
LARGEST_FOLDER = 50_000
MOST_MEMORY = 64 * 2**20  # beside that of a process without a directory


def watch(stack: Stack, directory: Path, **settings: Any) -> None:
    with override_settings(WAKEFUL_FILE_ROOTS=[str(directory)]), stack.orm():
        given = {"directory": str(directory), "patterns": "*.csv", **settings}
        create_source("in", kind="directory", settings=given, by="test")


def test_each_file_is_reported_once_and_whole_while_the_watcher_is_killed(
    make_stack: StackMaker, tmp_path: Path
) -> None:
    points = Points(tmp_path / "points")
    place = tmp_path / "in"
    place.mkdir()
    stack = make_stack(env={**points.env, "WAKEFUL_FILE_ROOTS": str(place)})
    watch(stack, place, settle="4s", every="1s")
    stack.start("dispatcher")
    watchers = [stack.start("sources"), stack.start("sources")]
    files = MovingFiles(place, FILES)
    kills = 0

    for change in (files.arrive, files.move):
        deaths = iter(DEATHS)
        points.arm(next(deaths), "kill@2")
        change()
        while files.missing(file_events(stack.query)):
            for watcher in dead(watchers):
                kills += 1
                points.release_all()
                watcher.restart(wait=False)
                if point := next(deaths, ""):
                    points.arm(point, "kill@2")
            time.sleep(0.1)
        points.release_all()

    assert file_events(stack.query) == files.expected
    assert kills >= len(DEATHS)
    watchers[0].kill()
    eventually(lambda: not stack.query("SELECT 1 FROM triggers_event WHERE dispatched_at IS NULL"))
    stack.manage("verify", "--drained")
    print(f"\n{FILES:,} files, {sum(files.expected.values()):,} events, {kills} kills: each event once")


def test_a_tree_of_many_files_is_scanned_in_bounded_memory(make_stack: StackMaker, tmp_path: Path) -> None:
    place = tmp_path / "in"
    place.mkdir()
    stack = make_stack(env={"WAKEFUL_FILE_ROOTS": str(place)})
    stack.start("dispatcher")
    watcher = stack.start("sources")
    before = memory(watcher.pid)
    for number in range(TREE):
        folder = "large" if number < LARGEST_FOLDER else f"{number // 1000}/{number // 100}"
        if number % 100 == 0:
            (place / folder).mkdir(parents=True, exist_ok=True)
        (place / folder / f"{number}.csv").touch()

    time.sleep(2)  # what is younger than a tick when the source is made counts as new
    began = time.monotonic()
    watch(stack, place, settle="0s", every="1s", has_hints=False)
    eventually(lambda: stack.query("SELECT 1 FROM triggers_reading WHERE position->>'is_complete' = 'true'"))
    first = time.monotonic() - began
    assert stack.query("SELECT count(*) FROM triggers_watchedfile")[0]["count"] == TREE
    assert not file_events(stack.query)

    times = psutil.Process(watcher.pid).cpu_times()
    (place / "large" / "7.csv").write_text("7")
    (place / "199" / "1999" / "new.csv").write_text("new")
    (place / "150" / "1500" / "150000.csv").unlink()
    began = time.monotonic()
    eventually(lambda: len(file_events(stack.query)) == 3)
    second = time.monotonic() - began
    spent = psutil.Process(watcher.pid).cpu_times()

    more = memory(watcher.pid) - before
    print(
        f"\n{TREE:,} files: first scan {first:.1f} s; three changes reported after {second:.1f} s without hints "
        f"({spent.user + spent.system - times.user - times.system:.1f} s of CPU); {more / 2**20:.0f} MB of memory at most"
    )
    assert more < MOST_MEMORY


def memory(pid: int) -> int:
    """The most that the process has had resident, in bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
