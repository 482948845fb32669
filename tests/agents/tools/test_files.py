"""The tools that read and write files, notes and git below WAKEFUL_WORK_ROOTS."""

import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents.tools import toolbox
from agents.work_files import WorkFileRefused, digest_of
from agents.work_git import GitFailed, Repository
from agents.work_notes import append_note
from tests.support.tools import call

pytestmark = pytest.mark.django_db

AT = datetime(2026, 11, 26, 23, 30, tzinfo=UTC)


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    (tmp_path / "root").mkdir()
    settings.WAKEFUL_WORK_ROOTS = [str(tmp_path / "root")]
    return tmp_path / "root"


def sh(folder: Path, *words: str) -> str:
    known = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1", "PATH": os.environ["PATH"]}
    named = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(
        ["git", *words], cwd=folder, env=known | named, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def repository(root: Path) -> Path:
    folder = root / "shop"
    folder.mkdir()
    sh(folder, "init", "-q", "-b", "main")
    (folder / "a.txt").write_text("one\n")
    sh(folder, "add", ".")
    sh(folder, "commit", "-q", "-m", "first")
    return folder


# Files


def test_a_file_is_read_in_untrusted_parts_and_written_by_its_digest(root: Path) -> None:
    (root / "docs").mkdir()
    (root / "docs/a.txt").write_text("x" * 60_000 + "end")

    read = call("read_file", {"path": "docs/a.txt"}, {"path": "docs/a.txt", "begin": 60_000})
    written = call("write_file", {"path": "docs/a.txt", "text": "new", "replaces": digest_of("x" * 60_000 + "end")})

    assert read.done.is_tainted and "'next': 60000" in read.results[0].replace('"', "'")
    assert "end" in read.results[1]
    assert not written.done.is_tainted and (root / "docs/a.txt").read_text() == "new"
    assert "docs/" in call("list_files", {}).results[0]


@pytest.mark.parametrize("tool", ["read_file", "list_files", "write_file", "git_look", "git_commit"])
def test_a_path_that_leads_out_is_reported_to_the_model(tool: str, root: Path) -> None:
    more: Any = {
        "write_file": {"text": "x"}, "git_look": {"what": "log"}, "git_commit": {"branch": "b", "message": "m", "paths": ["a"]},
    }.get(tool, {})  # fmt: skip
    path = {"repository" if tool.startswith("git") else "path": "../secret", **more}

    assert "no .." in call(tool, path).results[0]


def test_what_writes_asks_a_person_in_a_tainted_run(root: Path) -> None:
    dangerous = [one.name for one in toolbox.all_tools() if (one.metadata or {}).get("dangerous")]

    assert {"write_file", "git_commit"} <= set(dangerous)
    assert not {"read_file", "list_files", "git_look", "add_note"} & set(dangerous)


# Notes


def test_a_note_is_appended_once_to_that_of_the_day(root: Path, settings: Any) -> None:
    settings.WAKEFUL_ZONE = "Europe/Vienna"
    for _ in range(2):
        assert append_note("Two letters\nwere answered -->", at=AT, by="clerk", key="run:1--x") == "notes/2026-11-27.md"
    append_note("again", at=AT, by="clerk", key="run:2")

    lines = (root / "notes/2026-11-27.md").read_text().splitlines()
    assert lines == [
        "- 00:30 clerk: Two letters", "  were answered --> <!-- run:1- -x -->", "- 00:30 clerk: again <!-- run:2 -->",
    ]  # fmt: skip


def test_the_tool_appends_with_the_key_of_its_step(root: Path) -> None:
    called = call("add_note", {"text": "All is well"}, is_tainted=True)

    [note] = (root / "notes").iterdir()
    assert note.name in called.results[0]
    assert note.read_text().count("All is well") == 1


# Git


def test_a_repository_is_looked_at(repository: Path) -> None:
    sh(repository, "branch", "old")
    (repository / "a.txt").write_text("two\n")

    found = Repository("shop")

    assert "## main" in found.status() and " M a.txt" in found.status()
    assert "first" in found.log()
    assert "old" in found.branches() and found.branches().count("[merged]") == 2
    assert "+two" in found.diff()
    looked = call("git_look", {"repository": "shop", "what": "diff"})
    assert looked.done.is_tainted and "+two" in looked.results[0]


def test_files_are_committed_to_a_new_branch_and_nothing_else_changes(repository: Path) -> None:
    (repository / "a.txt").write_text("two\n")
    (repository / "new.txt").write_text("new\n")
    (repository / "staged.txt").write_text("staged\n")
    sh(repository, "add", "staged.txt")
    before = sh(repository, "status", "--short", "--branch")

    made = Repository("shop").commit("tidy/a", "Tidy", ["a.txt"], at=AT, key="run:1")

    assert sh(repository, "show", "--format=%an %s", "--name-only", made).split() == ["Wakeful", "Tidy", "a.txt"]
    assert sh(repository, "rev-parse", "tidy/a").strip() == made
    assert sh(repository, "status", "--short", "--branch") == before


def test_a_repetition_finds_its_commit_and_the_branch_of_another_is_left(repository: Path) -> None:
    found = Repository("shop")
    (repository / "a.txt").write_text("two\n")
    made = found.commit("tidy", "Tidy", ["a.txt"], at=AT, key="run:1")
    (repository / "a.txt").write_text("three\n")

    assert found.commit("tidy", "Tidy", ["a.txt"], at=AT, key="run:1") == made
    with pytest.raises(GitFailed, match="there already"):
        found.commit("tidy", "Tidy", ["a.txt"], at=AT, key="run:2")
    with pytest.raises(GitFailed, match="there already"):
        found.commit("main", "Tidy", ["a.txt"], at=AT, key="run:2")
    sh(repository, "checkout", "-q", "--", "a.txt")
    with pytest.raises(GitFailed, match="nothing to commit"):
        found.commit("other", "Tidy", ["a.txt"], at=AT, key="run:3")


@pytest.mark.parametrize("branch", ["-d", "a..b", "a b", "HEAD", "x.lock", "@{-1}", ""])
def test_what_is_no_name_of_a_branch_is_refused(repository: Path, branch: str) -> None:
    with pytest.raises(GitFailed):
        Repository("shop").commit(branch, "x", ["a.txt"], at=AT, key="run:1")


def test_no_hook_runs_and_no_command_of_the_model(repository: Path, tmp_path: Path) -> None:
    ran = tmp_path / "ran"
    for hook in ("reference-transaction", "post-commit", "pre-commit", "post-index-change"):
        (repository / f".git/hooks/{hook}").write_text(f"#!/bin/sh\ntouch {ran}\n")
        (repository / f".git/hooks/{hook}").chmod(0o755)
    sh(repository, "config", "core.fsmonitor", f"touch {ran}; false")
    sh(repository, "config", "diff.external", f"touch {ran}")
    found = Repository("shop")
    (repository / "a.txt").write_text("two\n")

    found.status(), found.diff(), found.log(), found.branches()
    found.commit("tidy", "x", ["a.txt"], at=AT, key="run:1")
    with pytest.raises(GitFailed):
        found.diff("--output=/tmp/x")

    assert not ran.exists()


def test_no_configuration_of_a_bare_repository_is_written(repository: Path, root: Path) -> None:
    sh(root, "clone", "-q", "--bare", "shop", "shop.git")
    sh(root / "shop.git", "worktree", "add", "-q", "../beside")

    said = call("write_file", {"path": "shop.git/filters", "text": '[filter "x"]\nclean = reboot'}).results[0]

    assert "folder of git" in said
    (root / "beside/a.txt").write_text("two\n")
    assert Repository("beside").commit("tidy", "x", ["a.txt"], at=AT, key="run:1")


def test_a_configuration_that_includes_a_file_of_the_roots_is_refused(repository: Path, tmp_path: Path) -> None:
    repository = repository.rename(repository.with_name("Läden"))
    sh(repository, "config", "include.path", "../.gitconfig")
    (tmp_path / "mine").write_text("[user]\nname = ada\n")
    sh(repository, "config", "--add", "include.path", str(tmp_path / "mine"))
    assert "first" in Repository("Läden").log()

    written = {"path": "Läden/.gitconfig", "text": '[filter "x"]\nclean = reboot\n'}
    call("write_file", written)

    with pytest.raises(WorkFileRefused, match="includes"):
        Repository("Läden")


def test_only_a_repository_below_the_roots_is_one(repository: Path, root: Path, tmp_path: Path) -> None:
    sh(tmp_path, "init", "-q", "outside")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "empty").mkdir()
    (root / "away").mkdir()
    (root / "away/.git").write_text(f"gitdir: {tmp_path / 'outside/.git'}\n")
    sh(repository, "worktree", "add", "-q", "../beside")

    for path in ("link", "empty", "away", "shop/.git", str(tmp_path / "outside")):
        with pytest.raises(WorkFileRefused):
            Repository(path)
    assert "first" in Repository("beside").log()


def test_a_long_answer_is_cut(repository: Path) -> None:
    (repository / "a.txt").write_text("line\n" * 50_000)

    assert Repository("shop").diff().endswith("cut after 60,000 bytes")


def test_a_git_that_hangs_is_ended(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Repository("shop")
    (tmp_path / "git").write_text("#!/bin/sh\nsleep 60 & sleep 60\n")
    (tmp_path / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("agents.work_git.SECONDS", 0.2)

    with pytest.raises(GitFailed, match="took longer"):
        found.log()
