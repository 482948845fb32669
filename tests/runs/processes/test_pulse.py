import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.processes import pulse
from runs.processes.probe import of_loop
from runs.processes.pulse import FOLDER, Beat, Pulse
from tests.support.stack import ROOT

BEATS = "import sys, time; from runs.processes.pulse import Pulse; Pulse('beat', limit=60).beat(); print(flush=True); time.sleep(600)"

# Another probe, which stands still where it is about to remove the file.
PROBES = """
import sys, time
from pathlib import Path
from runs.processes import pulse
Path.unlink = lambda path: print(flush=True) or time.sleep(600)
pulse._read(Path(sys.argv[1]))
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv(FOLDER, str(tmp_path / "pulses"))
    return tmp_path / "pulses"


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """One that has beaten once."""
    begun = subprocess.Popen([sys.executable, "-c", BEATS], cwd=ROOT, stdout=subprocess.PIPE)
    assert begun.stdout
    begun.stdout.readline()
    with begun:
        yield begun
        begun.kill()


def test_a_probe_sees_the_last_beat_of_a_process_that_lives(process: subprocess.Popen[bytes]) -> None:
    [seen] = pulse.read("beat")

    assert (seen.pid, seen.limit) == (process.pid, 60)
    assert 0 <= seen.ago < 60
    assert list(pulse.read("worker")) == []


def test_nothing_is_left_of_a_process_that_was_killed(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()

    assert list(pulse.read("beat")) == []
    assert list(folder.iterdir()) == []


def test_of_two_probes_at_the_same_moment_neither_takes_the_other_for_the_process(
    process: subprocess.Popen[bytes], folder: Path
) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
    path = folder / f"beat.{process.pid}"
    with subprocess.Popen([sys.executable, "-c", PROBES, path], cwd=ROOT, stdout=subprocess.PIPE) as other:
        assert other.stdout
        other.stdout.readline()
        assert list(pulse.read("beat")) == []
        other.kill()


def test_a_frozen_process_is_still_seen(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGSTOP)

    assert [seen.pid for seen in pulse.read("beat")] == [process.pid]


def test_a_child_that_was_forked_does_not_keep_its_parent_alive(process: subprocess.Popen[bytes]) -> None:
    code = f"import os; {BEATS.replace('time.sleep(600)', 'os.fork() or time.sleep(5)')}"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL, check=True)

    assert [seen.pid for seen in pulse.read("beat")] == [process.pid]


def test_a_file_that_was_cleared_away_comes_back(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulse, "EVERY", 0)
    own = Pulse("worker", limit=60)
    own.beat()
    [path] = folder.iterdir()
    path.unlink()

    own.beat()

    assert path.exists()


def test_a_folder_that_others_may_write_into_is_not_used(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o777)

    Pulse("worker", limit=60).beat()

    assert list(folder.iterdir()) == []


def test_a_process_works_where_no_pulse_can_be_written_and_logs_why_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(pulse, "EVERY", 0)
    monkeypatch.setenv(FOLDER, "/proc/nowhere")
    own = Pulse("worker", limit=60)

    for _ in range(5):
        own.beat()

    [record] = caplog.records
    assert "/proc/nowhere" in record.getMessage()


FULL = """
import resource
from runs.processes import pulse
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
pulse.EVERY = 0
own = pulse.Pulse("beat", limit=60)
for _ in range(pulse.TRIES):
    own.beat()
"""


def test_a_full_disk_is_logged() -> None:
    done = subprocess.run([sys.executable, "-c", FULL], cwd=ROOT, capture_output=True, text=True, check=True)

    assert "The pulse of beat cannot be written" in done.stderr


def test_installations_of_one_user_do_not_see_each_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(FOLDER)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    other = tmp_path / "other"
    for part in ("runs/__init__.py", "runs/processes/__init__.py", "runs/processes/pulse.py"):
        (other / part).parent.mkdir(parents=True, exist_ok=True)
        (other / part).write_bytes((ROOT / part).read_bytes())
    beats = "import sys; from runs.processes.pulse import Pulse; Pulse('beat', limit=60).beat(); print(flush=True); sys.stdin.read()"

    with subprocess.Popen(
        [sys.executable, "-c", beats], cwd=other, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as begun:
        assert begun.stdout
        begun.stdout.readline()

        assert list(tmp_path.rglob("beat.*"))
        assert list(pulse.read("beat")) == []


@pytest.mark.parametrize(
    ("ago", "within", "answers", "alive", "said"),
    [
        (5, None, True, True, "came round 5.0 s ago"),
        (61, None, True, False, "It hangs"),
        (61, None, False, True, "the database does not answer"),
        (61, 90, True, True, "came round 61.0 s ago"),
        (5, 3, True, False, "It hangs"),
    ],
)
def test_a_loop_that_does_not_come_round_hangs_unless_it_may_wait_for_the_database(
    monkeypatch: pytest.MonkeyPatch, ago: float, within: float | None, answers: bool, alive: bool, said: str
) -> None:
    monkeypatch.setattr("runs.processes.probe.database_answers", lambda: answers)

    verdict = of_loop("worker", [Beat(pid=1, ago=0, limit=60), Beat(pid=2, ago=ago, limit=60)], None, within)

    assert (verdict.alive, said in verdict.reason) == (alive, True)


def test_of_several_processes_one_may_be_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.processes.probe.database_answers", lambda: True)
    beats = [Beat(pid=1, ago=0, limit=60), Beat(pid=2, ago=90, limit=60)]

    assert not of_loop("worker", beats, None, None).alive
    assert of_loop("worker", beats, 1, None).alive
    assert "No worker with pid 3 lives here" in of_loop("worker", beats, 3, None).reason


WITHOUT_DJANGO = """
import runpy, sys
sys.argv = ["manage.py", "alive", "beat"]
try:
    runpy.run_path("manage.py", run_name="__main__")
except SystemExit as end:
    print(end.code, "django" in sys.modules, "config" in sys.modules)
"""


def test_a_probe_loads_neither_django_nor_the_settings() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_DJANGO], cwd=ROOT, capture_output=True, text=True)

    assert done.stdout.split() == ["1", "False", "False"]
    assert done.stderr.startswith("No beat lives here")
