"""The supervisor, run as the process it is: crashes, signals, order."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from config.stack.children import command_of
from tests.support.stack import ROOT, eventually

SCRIPT = """
import os, sys
from config.stack import supervisor
from config.stack.supervisor import Program, Supervisor
programs = [Program(name=name, command=[sys.executable, "-u", "-c", code], patience={patience}) for name, code in {programs!r}]
supervisor.STABLE = {stable}
Supervisor(programs, env=dict(os.environ)).run()
print("over", flush=True)
"""
PATIENCE = 4.0  # seconds
STAYS = "import os, time; print('pid', os.getpid(), flush=True); time.sleep(60)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
CRASHES_LATER = "import time; time.sleep(0.3); raise SystemExit(3)"
CRASHES = "print('alas'); raise SystemExit(3)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-u', '-c', {STAYS!r}])"


@contextmanager
def supervising(
    log: Path, programs: list[tuple[str, str]], stable: float = 60.0, patience: float = PATIENCE
) -> Iterator[subprocess.Popen[bytes]]:
    with (
        log.open("wb") as output,
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(programs=programs, patience=patience, stable=stable)],
            stdout=output,
            cwd=ROOT,
        ) as supervisor,
    ):
        try:
            yield supervisor
        finally:
            supervisor.kill()


def pids_in(log: Path) -> list[int]:
    return [int(line.split()[-1]) for line in log.read_text().splitlines() if "| pid " in line]


def test_log_lines_carry_the_name_of_their_program(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervising(log, [("web", STAYS), ("worker", STAYS)]) as supervisor:
        eventually(lambda: len(pids_in(log)) == 2)
        supervisor.terminate()
        supervisor.wait(60)

    assert f"web    | pid {pids_in(log)[0]}" in log.read_text() or f"web    | pid {pids_in(log)[1]}" in log.read_text()


def test_programs_stop_in_reverse_order_and_leave_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervising(log, [("first", STAYS), ("second", STAYS)]) as supervisor:
        eventually(lambda: len(pids_in(log)) == 2)
        supervisor.send_signal(signal.SIGINT)
        supervisor.wait(60)

    text = log.read_text()
    assert text.index("second stopped") < text.index("first stopped") < text.index("over")
    assert not any(command_of(pid) for pid in pids_in(log))


def test_a_crashed_program_is_started_again_with_a_message(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervising(log, [("fragile", CRASHES), ("steady", STAYS)]):
        eventually(lambda: log.read_text().count("| alas") >= 2)

    assert re.search(r"fragile ended with exit code 3 after \d+ s: starting it again in 1 s", log.read_text())


def test_the_pause_does_not_grow_over_crashes_of_a_program_that_was_stable_in_between(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervising(log, [("mortal", CRASHES_LATER)], stable=0.2):
        eventually(lambda: log.read_text().count("starting it again") >= 3)

    pauses = [line.rpartition(" in ")[2] for line in log.read_text().splitlines() if "starting it again" in line]
    assert set(pauses) == {"1 s"}


def test_a_killed_program_takes_its_children_with_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervising(log, [("parent", PARENT)]) as supervisor:
        grandchild = eventually(lambda: pids_in(log))[0]
        [parent] = psutil.Process(supervisor.pid).children()
        os.kill(parent.pid, signal.SIGKILL)

        eventually(lambda: not command_of(grandchild))
        eventually(lambda: len(pids_in(log)) == 2)
        assert "parent was killed by SIGKILL" in log.read_text()


def test_a_program_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervising(log, [("deaf", DEAF)]) as supervisor:
        eventually(lambda: "| deaf" in log.read_text())
        supervisor.terminate()
        supervisor.wait(60)

    assert "deaf did not stop in time: killing it" in log.read_text()


def test_a_later_second_signal_kills_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with supervising(log, [("deaf", DEAF)], patience=60) as supervisor:
        eventually(lambda: "| deaf" in log.read_text())
        began = time.monotonic()
        supervisor.send_signal(signal.SIGINT)
        supervisor.send_signal(signal.SIGINT)  # at the same time: the same Ctrl-C, by way of make
        time.sleep(1.1)
        assert supervisor.poll() is None
        supervisor.send_signal(signal.SIGINT)
        supervisor.wait(60)

    assert time.monotonic() - began < 60


def test_programs_die_with_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    if sys.platform != "linux":
        return
    log = tmp_path / "log"
    with supervising(log, [("web", STAYS)]) as supervisor:
        [pid] = eventually(lambda: pids_in(log))
        supervisor.kill()

        eventually(lambda: not command_of(pid))
