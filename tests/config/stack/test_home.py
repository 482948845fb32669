import os
import subprocess
import sys
from pathlib import Path

import pytest

from config.stack import children, home
from config.stack.embedded import EmbeddedError


def test_generated_secrets_are_kept_and_private(tmp_path: Path) -> None:
    home.keep(tmp_path, {"DATABASE_URL": "postgres://one"})
    first = (tmp_path / "env").read_text()
    home.keep(tmp_path, {"DATABASE_URL": "postgres://two"})
    second = (tmp_path / "env").read_text()

    assert first.replace("postgres://one", "postgres://two") == second
    assert all(f"{name}='" in first for name in home.GENERATED)
    assert (tmp_path / "env").stat().st_mode & 0o777 == 0o600


def test_the_address_of_a_server_that_no_longer_runs_here_is_forgotten(tmp_path: Path) -> None:
    home.keep(tmp_path, {"DATABASE_URL": "postgres://ours", "REDIS_URL": "redis://ours"})

    home.keep(tmp_path, {"REDIS_URL": "redis://ours"})

    assert "DATABASE_URL" not in (tmp_path / "env").read_text()


def test_other_commands_know_the_demo_as_long_as_the_stack_runs_it(tmp_path: Path) -> None:
    home.keep(tmp_path, {"WAKEFUL_DEMO": "1"})
    with_demo = (tmp_path / "env").read_text()
    home.keep(tmp_path, {})

    assert "WAKEFUL_DEMO='1'" in with_demo
    assert "WAKEFUL_DEMO" not in (tmp_path / "env").read_text()


def test_leftovers_of_a_dead_stack_are_named_with_the_command_that_ends_them(tmp_path: Path) -> None:
    lines: list[str] = []
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as left:
        home.remember_processes(tmp_path, {"worker": left.pid})
        try:
            with pytest.raises(EmbeddedError, match=rf"worker \({left.pid}\) still run.*kill {left.pid}"):
                home.wait_for_leftovers(tmp_path, lines.append, patience=0.3)
        finally:
            left.kill()

    home.wait_for_leftovers(tmp_path, lines.append, patience=0.3)
    assert len(lines) == 1


def test_a_process_that_only_got_the_same_number_is_no_leftover(tmp_path: Path) -> None:
    (tmp_path / "processes").write_text(f'{{"worker": [{os.getpid()}, "another start time"]}}')

    home.wait_for_leftovers(tmp_path, print, patience=0)


def test_a_process_that_is_gone_has_no_identity() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()

    assert children.identity_of(process.pid) == ""
    assert children.identity_of(os.getpid())
