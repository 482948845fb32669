"""`manage.py up --demo` as a person uses it: one command, a printed request, Ctrl-C."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

import psutil
import pytest

from config.stack.children import command_of
from tests.support.servers import reachable_folder
from tests.support.stack import ROOT, eventually, free_port

pytestmark = pytest.mark.sampled

PATIENCE = 300.0  # seconds; a loaded machine takes its time to start seven processes


class Up:
    """One run of the command, without variables of Wakeful in the environment."""

    def __init__(self, home: Path, port: int, *flags: str) -> None:
        ours = ("WAKEFUL_", "DJANGO_", "PG", "DATABASE_URL", "REDIS_URL", "CELERY_", "SECRET_KEY")
        silent = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        self.home, self.port = home, port
        self.env = {**silent, "WAKEFUL_HOME": str(home), "WAKEFUL_PORT": str(port)}
        self.command = [sys.executable, "manage.py", "up", "--demo", *flags]
        self.log = home.with_name(f"{home.name}-{next(_numbers)}.log")
        self.start()

    def start(self) -> None:
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.env,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def wait_ready(self) -> "Up":
        eventually(lambda: "Ctrl-C stops everything." in self.output() or self.process.poll() is not None, PATIENCE)
        assert self.process.poll() is None, self.output()
        return self

    def manage(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "manage.py", *arguments],
            env=self.env,
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )

    def paste_curl(self) -> tuple[int, dict[str, str]]:
        """Paste the printed order into a shell; status and body."""
        curl = re.findall(r"(curl -i .*order\.placed.*)", self.output())[-1]
        done = subprocess.run(["bash", "-c", curl], capture_output=True, text=True, check=True)
        head, _, body = done.stdout.replace("\r", "").partition("\n\n")
        return int(head.split()[1]), json.loads(body)

    def descendants(self) -> list[psutil.Process]:
        return psutil.Process(self.process.pid).children(recursive=True)

    def end(self) -> None:
        """Kill it, if it still runs; on Linux its children follow."""
        if self.process.poll() is None:
            left = self.descendants()
            self.process.kill()
            self.process.wait()
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
        self.log.unlink(missing_ok=True)

    def interrupt(self) -> None:
        left = self.descendants()
        self.process.send_signal(signal.SIGINT)
        assert self.process.wait(PATIENCE) == 0, self.output()
        assert not [process for process in left if command_of(process.pid)], "processes were left running"


@pytest.fixture
def home() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder


@pytest.fixture
def started() -> Iterator[list[Up]]:
    """What a test starts goes in here, and is gone after it."""
    started: list[Up] = []
    yield started
    for up in started:
        up.end()


@pytest.fixture(scope="module")
def running() -> Iterator[Up]:
    """A stack that runs; tests of what does not disturb it share it."""
    with reachable_folder() as home:
        up = Up(home, free_port())
        try:
            up.wait_ready()
            yield up
        finally:
            up.end()


def test_up_starts_from_an_empty_home_runs_the_first_event_and_stops_cleanly(running: Up) -> None:
    up = running
    password = password_in(up)

    status, answer = up.paste_curl()
    again, duplicate = up.paste_curl()

    assert (status, again) == (202, 200)
    assert duplicate == {"event": answer["event"], "duplicate": True}
    eventually(lambda: statuses_of(up, answer["event"]) == ["succeeded"])
    doctor = up.manage("doctor")
    assert doctor.returncode == 0, doctor.stdout

    up.interrupt()
    assert "All processes stopped." in up.output()

    # A second start resumes: same data, same password (not printed again), a fresh delivery.
    up.start()
    up.wait_ready()
    assert password not in up.output()
    assert statuses_of(up, answer["event"]) == ["succeeded"]
    assert up.paste_curl()[0] == 202


@pytest.mark.chaos
def test_a_stack_whose_supervisor_was_killed_leaves_no_process_and_the_next_one_starts_paused_with_the_option(
    home: Path, started: list[Up]
) -> None:
    port = free_port()
    started.append(first := Up(home, port))
    first.wait_ready()
    left = first.descendants()
    first.process.kill()
    first.process.wait()
    eventually(lambda: not [process for process in left if command_of(process.pid)])

    started.append(up := Up(home, port, "--paused", "--separate"))
    up.wait_ready()

    assert "Paused: events are accepted and become runs; none of them starts until `manage.py resume`." in up.output()
    _, answer = up.paste_curl()
    eventually(lambda: statuses_of(up, answer["event"]) == ["queued"])
    doctor = up.manage("doctor")
    assert "All queues have been paused" in doctor.stdout
    assert "1 to fix." in doctor.stdout

    assert up.manage("resume").stdout == "All queues are resumed.\n"
    eventually(lambda: statuses_of(up, answer["event"]) == ["succeeded"])
    up.interrupt()


@pytest.mark.chaos
def test_a_killed_worker_is_started_again_and_works(running: Up) -> None:
    [worker] = [process for process in running.descendants() if is_worker(process) and is_child(process, running)]

    worker.kill()

    eventually(lambda: "worker was killed by SIGKILL" in running.output())
    event = running.manage("fire", "order-intake", "--data", '{"order": "A-9", "total": "1"}').stdout.strip()
    eventually(lambda: statuses_of(running, event) == ["succeeded"])


def test_a_busy_port_is_shown_before_anything_starts(running: Up, home: Path, started: list[Up]) -> None:
    started.append(second := Up(home, running.port))

    assert second.process.wait(PATIENCE) == 1
    assert f"Port {running.port} cannot be used" in second.output()
    assert f"WAKEFUL_PORT={running.port + 1}" in second.output()
    assert not (home / "postgres").exists()


def statuses_of(up: Up, event: str) -> list[str]:
    done = up.manage("runs", "--json", "--event", event)
    assert done.returncode == 0, done.stderr
    return [run["status"] for run in json.loads(done.stdout)]


def password_in(up: Up) -> str:
    return str(re.findall(r"password: (\S+)", up.output())[0])


def is_worker(process: psutil.Process) -> bool:
    return "worker" in process.cmdline()


def is_child(process: psutil.Process, up: Up) -> bool:
    return process.ppid() == up.process.pid


_numbers = count(1)
