"""Text files below WAKEFUL_WORK_ROOTS: no path leads out, and no edit of another program is lost unseen."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from agents import work_files
from agents.work_files import (
    MOST_BYTES,
    WorkFileChanged,
    WorkFileRefused,
    append_work_file,
    digest_of,
    names_in,
    read_work_file,
    write_work_file,
)


@pytest.fixture
def root(tmp_path: Path, settings: Any) -> Path:
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("secret")
    settings.WAKEFUL_WORK_ROOTS = [str(tmp_path / "root")]
    return tmp_path / "root"


def test_a_file_is_written_with_its_folders_and_read(root: Path) -> None:
    digest = write_work_file("notes/a/b.md", "Grüße\n", replaces="")

    found = read_work_file(str(root / "notes/a/b.md"))
    assert found and (found.text, found.digest) == ("Grüße\n", digest)
    assert read_work_file("notes/a/c.md") is None
    assert read_work_file("nowhere/c.md") is None
    assert names_in("notes/a") == ["b.md"]
    assert names_in("") == ["notes/"]


@pytest.mark.parametrize(
    "path",
    [
        "../secret", "a/../../secret", "/etc/passwd", "./a", "a//b", "", " ", "a\0b", "a\nb", "x" * 3000, "/".join("a" * 40),
        ".git/config", "repo/.GIT/hooks/x", "repo/.git", "repo/.git./x", "repo/GIT~1/x", "repo/.g\u200cit/config", "repo/.git::$INDEX/x",
    ],
)  # fmt: skip
def test_a_path_that_leads_out_or_into_git_is_refused(root: Path, path: str) -> None:
    for act in (lambda: read_work_file(path), lambda: write_work_file(path, "x", replaces="")):
        with pytest.raises(WorkFileRefused):
            act()
    assert not list(root.iterdir())


def test_another_spelling_of_the_root_is_no_root(root: Path) -> None:
    for path in (f"{root}-other/a", f"{root}/../secret", str(root).upper() + "/a", str(root)):
        with pytest.raises(WorkFileRefused):
            read_work_file(path)


def test_no_link_is_followed(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "secret")
    (root / "out").symlink_to(root.parent)

    for path in ("link", "out/secret", "out/new"):
        with pytest.raises(WorkFileRefused):
            read_work_file(path)
        with pytest.raises(WorkFileRefused):
            write_work_file(path, "x", replaces=digest_of("secret"))
        with pytest.raises(WorkFileRefused):
            append_work_file(path, "x", mark="x")
    with pytest.raises(WorkFileRefused):
        names_in("out")
    assert (root.parent / "secret").read_text() == "secret"


def test_a_repository_under_another_name_is_a_folder_of_git(root: Path) -> None:
    for name in ("shop.git/objects", "shop.git/refs", "tree", "head"):
        (root / name).mkdir(parents=True)
    (root / "shop.git/HEAD").write_text("ref: refs/heads/main\n")
    (root / "tree/HEAD").write_text("ref: refs/heads/main\n")
    (root / "tree/commondir").write_text("../shop.git\n")

    for folder in ("shop.git", "shop.git/objects", "tree"):
        with pytest.raises(WorkFileRefused, match="folder of git"):
            names_in(folder)
        with pytest.raises(WorkFileRefused, match="folder of git"):
            write_work_file(f"{folder}/config", "x", replaces="")
    write_work_file("head/a", "x", replaces="")


@pytest.mark.parametrize("name", ["HEAD", "head", "HEAD.", "docs/HE\u200cAD"])
def test_no_folder_becomes_a_repository(root: Path, name: str) -> None:
    with pytest.raises(WorkFileRefused):
        write_work_file(name, "ref: refs/heads/main\n", replaces="")
    with pytest.raises(WorkFileRefused):
        append_work_file(name, "ref: refs/heads/main\n", mark="ref")
    assert not list(root.iterdir())


def test_only_texts_of_a_bounded_size_are_read_and_written(root: Path) -> None:
    (root / "bytes").write_bytes(b"\xff\xfe")
    (root / "nul").write_bytes(b"a\0b")
    (root / "large").write_bytes(b"a" * (MOST_BYTES + 1))
    os.mkfifo(root / "pipe")

    for path in ("bytes", "nul", "large", "pipe"):
        with pytest.raises(WorkFileRefused):
            read_work_file(path)
    for text in ("a" * (MOST_BYTES + 1), "\0", "\ud800"):
        with pytest.raises(WorkFileRefused):
            write_work_file("new", text, replaces="")


def test_a_file_that_another_program_wrote_is_not_overwritten(root: Path) -> None:
    read = write_work_file("a.md", "one", replaces="")
    (root / "a.md").write_text("by hand")

    with pytest.raises(WorkFileChanged, match="another content"):
        write_work_file("a.md", "two", replaces=read)
    with pytest.raises(WorkFileChanged, match="is there already"):
        write_work_file("a.md", "two", replaces="")
    (root / "a.md").unlink()
    with pytest.raises(WorkFileChanged, match="is gone"):
        write_work_file("a.md", "two", replaces=read)
    assert not list(root.iterdir())  # no half of it stays


def test_the_same_write_again_changes_nothing_and_the_mode_stays(root: Path) -> None:
    first = write_work_file("a.md", "one", replaces="")
    (root / "a.md").chmod(0o600)

    second = write_work_file("a.md", "two", replaces=first)

    assert write_work_file("a.md", "two", replaces=first) == second
    assert (root / "a.md").read_text() == "two"
    assert (root / "a.md").stat().st_mode & 0o777 == 0o600


def test_of_two_who_read_the_same_one_writes(root: Path) -> None:
    read = write_work_file("a.md", "", replaces="")
    written: list[str] = []

    def write(name: str) -> None:
        try:
            write_work_file("a.md", name, replaces=read)
        except WorkFileChanged:
            return
        written.append(name)

    threads = [threading.Thread(target=write, args=[str(number)]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert written == [(root / "a.md").read_text()]


def test_a_text_is_appended_once(root: Path) -> None:
    assert append_work_file("day.md", "- one <!-- 1 -->\n", mark="<!-- 1 -->")
    (root / "day.md").write_text((root / "day.md").read_text() + "by hand\n")

    assert not append_work_file("day.md", "- one <!-- 1 -->\n", mark="<!-- 1 -->")
    assert append_work_file("day.md", "- two <!-- 2 -->\n", mark="<!-- 2 -->")
    assert (root / "day.md").read_text() == "- one <!-- 1 -->\nby hand\n- two <!-- 2 -->\n"


def test_a_text_is_appended_on_a_line_of_its_own(root: Path) -> None:
    (root / "day.md").write_text("by hand, without an end of line")

    append_work_file("day.md", "- one <!-- 1 -->\n", mark="<!-- 1 -->")

    assert (root / "day.md").read_text() == "by hand, without an end of line\n- one <!-- 1 -->\n"


def test_a_write_that_is_cut_leaves_what_was_there(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append_work_file("day.md", "- one\n", mark="one")
    read = digest_of("- one\n")

    def full(file: int, content: bytes) -> None:
        os.write(file, content[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(work_files, "_write", full)
    with pytest.raises(WorkFileRefused, match="No space"):
        append_work_file("day.md", "- two\n", mark="two")
    with pytest.raises(WorkFileRefused, match="No space"):
        write_work_file("day.md", "- two\n", replaces=read)

    assert (root / "day.md").read_text() == "- one\n"
    assert names_in("") == ["day.md"]


def test_what_a_killed_writer_left_is_gone_after_the_next_write(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", lambda *_, **__: os._exit(9))
        if not (child := os.fork()):
            write_work_file("a.md", "one", replaces="")
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 9 << 8
    assert [path.suffix for path in root.iterdir()] == [".part"]

    write_work_file("a.md", "two", replaces="")

    assert [path.name for path in root.iterdir()] == ["a.md"]


def test_without_a_root_there_is_no_file(settings: Any) -> None:
    settings.WAKEFUL_WORK_ROOTS = []
    with pytest.raises(WorkFileRefused, match="WAKEFUL_WORK_ROOTS is empty"):
        read_work_file("a")
