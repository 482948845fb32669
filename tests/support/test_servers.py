"""Folders of servers in memory do not stay."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.support.servers import GRACE, reachable_folder, sweep

MAKE_ONE = """
import time
from tests.support.servers import reachable_folder
with reachable_folder(on_disk=True) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def test_the_folder_of_a_killed_run_is_removed_by_the_next_one_and_one_in_use_is_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKE_ONE]
    with subprocess.Popen(command, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE) as process:
        assert process.stdout
        folder = Path(process.stdout.readline().decode().strip())
        age(folder)
        sweep(tmp_path)
        assert folder.exists()
        process.kill()
        process.wait()

        sweep(tmp_path)

    assert not folder.exists()


def test_a_folder_is_in_use_until_its_block_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # a folder of its own: other runs may have theirs beside
    with reachable_folder(on_disk=True) as folder:
        age(folder)
        sweep(folder.parent)
        assert folder.exists()
    assert not folder.exists()


def age(folder: Path) -> None:
    then = folder.stat().st_mtime - GRACE - 1
    os.utime(folder, (then, then))
