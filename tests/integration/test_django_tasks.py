"""Django's tasks by real processes: a project that has Django's connection and nothing of Wakeful's enqueues them, workers call them."""

import os
import subprocess
import sys
from pathlib import Path

import django
import pytest

from tests.support.stack import ROOT, Stack, StackMaker, eventually

pytestmark = pytest.mark.skipif(django.VERSION < (6,), reason="Django has no tasks")
LETTERS = {
    "DJANGO_SETTINGS_MODULE": "letters.wakeful",
    "PYTHONPATH": os.pathsep.join((str(ROOT / "tests/userapps"), str(ROOT))),
}
PROJECT = "import sys; from letters.tasks import *; "


@pytest.fixture
def post(make_stack: StackMaker) -> Stack:
    stack = make_stack(env=LETTERS, agents=True)
    stack.start("dispatcher", wait=False)
    stack.start("worker")
    return stack


def in_project(stack: Stack, code: str, *arguments: object) -> str:
    """Run this in a process of the project, and return its last line."""
    env = {**stack.env, "DJANGO_SETTINGS_MODULE": "letters.project"}
    done = subprocess.run(
        [sys.executable, "-c", f"import django; django.setup()\n{PROJECT}\n{code}", *map(str, arguments)],
        env=env, cwd=ROOT / "tests/userapps", capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return (done.stdout.splitlines() or [""])[-1]


def status_of(stack: Stack, name: str, id: str) -> str:
    return in_project(stack, f"print({name}.get_result(sys.argv[1]).status)", id)


def test_a_project_without_wakeful_enqueues_and_workers_call(post: Stack, tmp_path: Path) -> None:
    id = in_project(post, "print(send.enqueue('one', sys.argv[1]).id)", tmp_path)

    eventually(lambda: post.query("SELECT 1 FROM runs_run WHERE status IN ('succeeded', 'failed')"))
    assert in_project(post, "print(send.get_result(sys.argv[1]).return_value)", id) == "3"
    assert len((tmp_path / "one").read_text().splitlines()) == 1
    assert post.query("SELECT 1 FROM auth_group WHERE name = 'one'")


def test_a_task_that_rolled_back_is_called_again_and_its_writes_are_there_once(post: Stack, tmp_path: Path) -> None:
    id = in_project(post, "print(book.enqueue('novel', sys.argv[1]).id)", tmp_path)

    eventually(lambda: post.query("SELECT 1 FROM runs_run WHERE status = 'succeeded'"))
    said = "result = book.get_result(sys.argv[1]); print(result.status, result.attempts, len(result.errors))"
    assert in_project(post, said, id) == "SUCCESSFUL 2 1"
    assert len(post.query("SELECT 1 FROM auth_group WHERE name = 'novel'")) == 1


def test_a_killed_worker_repeats_a_transactional_task_and_no_other(post: Stack, tmp_path: Path) -> None:
    worker = post.processes[-1]
    in_project(post, "print(hang_once.enqueue('atlas', sys.argv[1]).id)", tmp_path)
    other = in_project(post, "print(hang.enqueue(sys.argv[1]).id)", tmp_path)
    eventually(lambda: (tmp_path / "hung").exists() and (tmp_path / "hangs").exists())

    worker.kill()
    worker.restart()

    eventually(lambda: post.query("SELECT 1 FROM runs_run WHERE status = 'succeeded'"))
    eventually(lambda: post.query("SELECT 1 FROM runs_run WHERE status = 'uncertain'"))
    assert len(post.query("SELECT 1 FROM auth_group WHERE name = 'atlas'")) == 1
    assert status_of(post, "hang", other) == "RUNNING"
