"""A directory: each change of a file is one event, when the file is complete, whatever happens to it and to the process."""

import os
import shutil
from base64 import b64decode
from collections import Counter
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agents import files
from tests.support.stack import eventually
from tests.support.watching import Watching
from triggers.models import Source, WatchedFile
from triggers.sources.files import beginning, candidates, hints, judge, scan, tree, watched_directory
from triggers.sources.files.tree import Tree
from triggers.sources.kind import kinds
from triggers.sources.polling.novelty import digest
from triggers.sources.runner import BATCH, SourceError
from triggers.sources.settings import InvalidSettings

pytestmark = pytest.mark.django_db


@pytest.fixture
def place(tmp_path: Path, settings: Any) -> Path:
    settings.WAKEFUL_FILE_ROOTS = [str(tmp_path)]
    place = tmp_path / "in"
    place.mkdir()
    return place


@pytest.fixture
def watching(place: Path) -> Watching:
    return Watching(place, patterns="*.csv")


def write(path: Path, text: str = "1;2") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_new_file_is_one_event_with_its_path_size_and_fingerprint(watching: Watching, place: Path) -> None:
    write(place / "a.csv", "1;2")
    write(place / "notes.txt")
    write(place / "b.csv.part")

    assert watching.look() == [("created", "a.csv")]
    data = watching.last
    assert (data["path"], data["size"]) == (f"{place}/a.csv", 3)
    assert data["fingerprint"] == f"sha256:{sha256(b'1;2').hexdigest()}"
    assert watching.messages[0].subject == data["path"]
    assert watching.look() == []


def test_a_changed_file_is_an_event_with_its_previous_state(watching: Watching, place: Path) -> None:
    path = write(place / "a.csv", "long content")
    watching.look()

    write(path, "other")  # truncated, and written again
    assert watching.look() == [("changed", "a.csv")]
    assert watching.last["previous"]["size"] == 12
    os.replace(write(place / "a.tmp", "third"), path)
    assert watching.look() == [("changed", "a.csv")]
    os.utime(path, (1, 1))
    path.chmod(0o600)
    assert watching.look() == []  # the content is the same
    write(path, "")
    assert watching.look() == [("changed", "a.csv")]
    path.unlink()
    assert watching.look() == [("vanished", "a.csv")]
    write(path, "third")
    assert watching.look() == [("created", "a.csv")]
    assert len({message.id for message in watching.messages}) == len(watching.messages)


def test_the_same_size_and_time_do_not_hide_another_content(watching: Watching, place: Path) -> None:
    path = write(place / "a.csv", "one")
    watching.look()
    was = path.stat()

    path.write_text("two")
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))

    assert watching.look() == [("changed", "a.csv")]


def test_a_moved_file_is_one_event(watching: Watching, place: Path) -> None:
    path = write(place / "a.csv")
    os.link(write(place / "b.csv", "b"), place / "c.csv")
    watching.look()

    (place / "done").mkdir()
    path.rename(place / "done" / "z.csv")
    assert watching.look() == [("renamed", "done/z.csv")]
    assert watching.last["previous"]["path"] == str(path)
    os.link(place / "b.csv", place / "d.csv")
    assert watching.look() == [("created", "d.csv")]  # the others are still there
    (place / "done").rename(place / "over")
    assert watching.look() == [("renamed", "over/z.csv")]
    (place / "over" / "z.csv").rename(place / "z.bak")
    assert watching.look() == [("vanished", "over/z.csv")]
    assert watching.look() == []


def test_a_scan_of_a_tree_without_changes_looks_at_each_file_once(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        write(place / f"d{number % 3}" / "deeper" / f"{number}.csv")
        write(place / f"d{number % 3}" / f"{number}.csv")
    assert len(watching.look()) == 24
    seen: Counter[tuple[bytes, bytes]] = Counter()
    real = Tree.metadata

    def metadata(tree: Tree, folder: bytes, name: bytes) -> Any:
        seen[folder, name] += 1
        return real(tree, folder, name)

    monkeypatch.setattr(Tree, "metadata", metadata)

    assert watching.look() == []
    assert (len(seen), set(seen.values())) == (24, {2})  # in two scans


def test_files_of_folders_that_went_have_vanished(watching: Watching, place: Path) -> None:
    for path in ("a/1.csv", "a/b/2.csv", "a!/3.csv", "c/4.csv", "c/5.csv", "d/6.csv"):
        write(place / path)
    watching.look()

    shutil.rmtree(place / "a")
    (place / "a").write_text("a file in its place")
    (place / "c" / "4.csv").unlink()
    (place / "d").rename(place / "e")

    assert watching.look() == [
        ("renamed", "e/6.csv"),
        ("vanished", "a/1.csv"),
        ("vanished", "a/b/2.csv"),
        ("vanished", "c/4.csv"),
    ]


def test_a_file_that_went_is_found_while_the_ledger_is_written(watching: Watching, place: Path) -> None:
    """A file that arrives and one that goes, in the same scan and folder: their number is the same."""
    write(place / "a.csv")
    gone = write(place / "b.csv")
    watching.look()

    gone.unlink()
    write(place / "c.csv", "another")
    assert watching.look() == [("created", "c.csv"), ("vanished", "b.csv")]


def test_more_folders_than_a_scan_remembers(watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "MOST_LISTED", 1)
    for number in range(4):
        write(place / f"d{number}" / "a.csv")
    watching.look()

    (place / "d2" / "a.csv").unlink()

    assert watching.look() == [("vanished", "d2/a.csv")]


def test_a_growing_file_is_no_event_before_it_has_settled(watching: Watching, place: Path) -> None:
    path = write(place / "a.csv", "1")
    watching.read_all()

    for _ in range(3):
        path.write_text(path.read_text() + "1")
        watching.settle()
        assert watching.read_all() == []

    watching.settle()
    assert [watching.seen(message) for message in watching.read_all()] == [("created", "a.csv")]
    assert watching.last["size"] == 4


def test_a_file_that_changes_while_it_is_read_is_no_event(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place / "a.csv", "1")
    real = files.fingerprint_of

    def written_meanwhile(*args: Any, **kwargs: Any) -> str:
        found = real(*args, **kwargs)
        path.write_text("half")
        return found

    monkeypatch.setattr(judge, "fingerprint_of", written_meanwhile)
    assert watching.look() == []
    monkeypatch.undo()
    assert watching.look() == [("created", "a.csv")]
    assert watching.last["size"] == 4


def test_a_marker_file_makes_its_file_complete(place: Path) -> None:
    watching = Watching(place, marker=".done")
    path = write(place / "a.csv")
    assert watching.look() == []

    marker = write(place / "a.csv.done", "")
    assert watching.look() == [("created", "a.csv")]
    write(path, "more")
    os.utime(marker, (1, 1))
    assert watching.look() == []  # the marker is that of the version before
    os.utime(marker)
    assert watching.look() == [("changed", "a.csv")]


def test_no_event_is_lost_or_repeated_when_the_process_dies_at_any_read(watching: Watching, place: Path) -> None:
    for number in range(20):
        write(place / f"{number % 4}" / f"{number}.csv", str(number))
    seen: list[Any] = []
    for _ in range(30):
        watching.connect(settle="0s")
        watching.reader.read(0)  # killed before it is recorded
        watching.connect()
        watching.read()
        seen += watching.read()  # killed after it

    assert sorted(watching.seen(message) for message in watching.messages) == sorted(
        ("created", f"{number % 4}/{number}.csv") for number in range(20)
    )
    assert seen


def made_at(watching: Watching, time: str) -> None:
    """As if the clock of the file system were far from that of the database."""
    Source.objects.filter(pk=watching.source.pk).update(created_at=time)
    watching.connect()


def test_files_older_than_the_source_are_skipped_with_begin_with_new(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place / "old.csv")
    monkeypatch.setattr(beginning, "TICK", -timedelta(hours=1))  # as if that were an hour ago
    watching = Watching(place, begin_with="new")
    watching.read_all()
    # After the first scan no clock is read.
    write(place / "new.csv")
    watching.connect()

    assert watching.look() == [("created", "new.csv")]
    write(path, "changed")
    assert watching.look() == [("changed", "old.csv")]


def test_a_file_whose_clock_is_a_tick_behind_that_of_its_source_is_an_event(place: Path) -> None:
    watching = Watching(place, begin_with="new")
    path = write(place / "new.csv")
    changed_at = datetime.fromtimestamp(path.stat().st_ctime, UTC)
    made_at(watching, (changed_at + timedelta(milliseconds=10)).isoformat())

    assert watching.look() == [("created", "new.csv")]


def test_a_clock_of_the_database_that_was_set_back_since_the_source_was_made_loses_no_file(place: Path) -> None:
    watching = Watching(place, begin_with="new")
    made_at(watching, (datetime.now(UTC) + timedelta(minutes=2)).isoformat())
    write(place / "new.csv")

    assert watching.look() == [("created", "new.csv")]


def test_a_file_that_is_younger_than_its_source_is_an_event_of_the_first_scan(place: Path) -> None:
    watching = Watching(place, begin_with="new")
    write(place / "new.csv")
    made_at(watching, "2000-01-01T00:00Z")

    assert watching.look() == [("created", "new.csv")]


class FileServer:
    """The system reports a directory without a disk of this host, and a clock that is ten minutes behind."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.aged: set[int] = set()
        self.real = files.FileMetadata.of
        monkeypatch.setattr(files.FileMetadata, "of", self.look_of)
        monkeypatch.setattr(os, "major", lambda _: 0)

    def look_of(self, found: os.stat_result) -> files.FileMetadata:
        look = self.real(found)
        minutes = 70 if found.st_ino in self.aged else 10
        return look._replace(ctime_ns=look.ctime_ns - minutes * 60 * 10**9)

    def age(self, path: Path) -> None:
        """An hour more."""
        self.aged.add(path.stat().st_ino)


@pytest.fixture
def file_server(monkeypatch: pytest.MonkeyPatch) -> FileServer:
    return FileServer(monkeypatch)


@pytest.mark.parametrize("folder", ["", "2026/07/"])
@pytest.mark.parametrize("says_its_time", [True, False])
def test_a_file_before_the_first_scan_of_a_file_server_whose_clock_is_behind_is_an_event(
    place: Path, file_server: FileServer, monkeypatch: pytest.MonkeyPatch, folder: str, says_its_time: bool
) -> None:
    if not says_its_time:
        monkeypatch.delattr(os, "O_TMPFILE")  # as NFS refuses it
    file_server.age(write(place / folder / "old.csv"))
    watching = Watching(place, begin_with="new")
    write(place / folder / "new.csv")

    assert watching.look() == [("created", f"{folder}new.csv")]
    assert {path.name for path in place.rglob("*.*")} == {"old.csv", "new.csv"}


def test_the_newest_file_counts_as_new_where_a_file_server_does_not_show_its_time(
    place: Path, file_server: FileServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")
    for name in ("old.csv", "last.csv"):
        file_server.age(write(place / name))
    file_server.aged.remove((place / "last.csv").stat().st_ino)
    watching = Watching(place, begin_with="new")
    watching.connect()

    assert watching.look() == [("created", "last.csv")]
    assert watching.look() == []


def test_a_file_that_had_not_settled_when_the_patterns_were_edited_is_an_event(
    place: Path, file_server: FileServer
) -> None:
    watching = Watching(place, patterns="*.csv", begin_with="new")
    file_server.age(write(place / "old.pdf"))
    watching.look()
    write(place / "orders.csv")
    watching.reader.directory.scan_at = 0.0
    watching.read()  # seen, not settled

    watching.connect(patterns="*.csv, *.pdf")
    watching.connect(patterns="*.csv, *.pdf, *.txt")  # before the first scan of the former edit

    assert watching.look() == [("created", "orders.csv")]
    write(place / "new.pdf")
    assert watching.look() == [("created", "new.pdf")]


def test_an_edit_of_the_patterns_that_is_taken_back_makes_no_event_twice(place: Path) -> None:
    watching = Watching(place, patterns="*.csv")
    write(place / "a.csv")
    assert watching.look() == [("created", "a.csv")]

    watching.connect(patterns="*.pdf")
    next(watching.reader.scan._whole())
    watching.position = dict(watching.reader.directory.position)
    watching.connect(patterns="*.csv")

    assert watching.look() == []


def test_a_position_of_an_earlier_version_goes_on_and_an_edit_then_loses_nothing(place: Path) -> None:
    watching = Watching(place, patterns="*.csv", begin_with="new")
    watching.look()
    former = repr(watching.reader.directory.selection).replace(", prefix=''", "")  # which that version did not have
    watching.position = {
        **{name: one for name, one in watching.position.items() if name not in ("wants", "former")},
        "selection": digest(former),
    }
    write(place / "a.csv")
    old = dict(watching.position)
    watching.connect()
    assert watching.reader.directory.position["is_complete"]
    watching.position = old
    Source.objects.filter(pk=watching.source.pk).update(created_at="2100-01-01T00:00Z")

    watching.connect(patterns="*.csv, *.pdf")

    assert watching.look() == [("created", "a.csv")]


def test_a_directory_that_is_away_is_an_error_and_nothing_has_vanished(watching: Watching, place: Path) -> None:
    write(place / "a.csv")
    watching.look()
    away = place.with_name("away")
    place.rename(away)

    with pytest.raises(SourceError, match="is not there"):
        watching.look()
    place.mkdir()  # the empty directory of a mount
    with pytest.raises(SourceError, match="Another directory"):
        watching.look()
    with pytest.raises(SourceError, match="Another directory"):
        watching.connect()
    assert WatchedFile.objects.count() == 1

    place.rmdir()
    away.rename(place)
    watching.connect()
    assert watching.look() == []
    shutil.rmtree(place)
    place.mkdir()
    watching.connect(may_be_replaced=True)
    assert watching.look() == [("vanished", "a.csv")]


def test_a_directory_that_goes_in_the_middle_of_a_scan_loses_no_file(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(place / "a.csv")
    watching.look()
    real = Tree.metadata

    def goes(tree: Tree, folder: bytes, name: bytes) -> Any:
        if place.exists():
            shutil.rmtree(place)
        return real(tree, folder, name)

    (place / "a.csv").unlink()
    watching.reader.directory.scan_at = 0.0
    watching.read_all()
    watching.settle()
    monkeypatch.setattr(Tree, "metadata", goes)
    with pytest.raises(SourceError, match="went while it was read"):
        watching.read_all()


def test_a_missing_sentinel_file_is_an_error_of_the_source(place: Path) -> None:
    write(place / ".mounted", "")
    watching = Watching(place, sentinel=".mounted")
    write(place / "a.csv")
    watching.look()
    (place / ".mounted").unlink()

    with pytest.raises(SourceError, match=r"has no \.mounted"):
        watching.look()


def test_symbolic_links_are_not_followed(watching: Watching, place: Path, tmp_path: Path) -> None:
    write(tmp_path / "outside" / "secret.csv")
    (place / "link.csv").symlink_to(tmp_path / "outside" / "secret.csv")
    (place / "folder").symlink_to(tmp_path / "outside")
    (place / "loop").symlink_to(place)
    path = write(place / "inner" / "a.csv")
    assert watching.look() == [("created", "inner/a.csv")]

    path.unlink()
    path.symlink_to(tmp_path / "outside" / "secret.csv")
    assert watching.look() == [("vanished", "inner/a.csv")]
    shutil.rmtree(place / "inner")
    (place / "inner").symlink_to(tmp_path / "outside")
    assert watching.look() == []


@pytest.mark.parametrize("wrong", ["", "in", "/data/../etc", "/elsewhere"])
def test_only_directories_below_the_roots_are_accepted(place: Path, wrong: str) -> None:
    with pytest.raises(InvalidSettings, match="directory"):
        kinds()["directory"].check({"directory": wrong})
    kinds()["directory"].check({"directory": str(place)})


def test_a_directory_that_is_a_link_is_refused_but_a_root_may_be_one(
    place: Path, tmp_path: Path, settings: Any
) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)
    with pytest.raises(SourceError, match="through a link"):
        Watching(link)

    settings.WAKEFUL_FILE_ROOTS = []
    Source.objects.all().delete()
    with pytest.raises(SourceError, match="not below one"):
        Watching(place)
    settings.WAKEFUL_FILE_ROOTS = [f"{link}/"]
    Source.objects.all().delete()
    watching = Watching(link)
    write(place / "a.csv")
    assert watching.look() == [("created", "a.csv")]


def test_file_names_that_are_no_text_are_kept_exactly(watching: Watching, place: Path) -> None:
    name = b"caf\xe9 \n\xff.csv"
    with open(os.path.join(os.fsencode(place), name), "wb") as file:
        file.write(b"1")

    assert len(watching.look()) == 1
    assert b64decode(watching.last["path_bytes"]) == os.path.join(os.fsencode(place), name)
    assert watching.last["path"].endswith("caf\\xe9 \n\\xff.csv")
    os.unlink(os.path.join(os.fsencode(place), name))
    assert [change for change, _ in watching.look()] == ["vanished"]


def test_an_unreadable_file_is_reported_once_and_is_an_event_when_it_becomes_readable(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place / "a.csv")
    write(place / "b.csv")
    real = Tree.open

    def refused(tree: Tree, folder: bytes, name: bytes) -> Any:
        if name == b"a.csv":
            raise PermissionError(13, "Permission denied")
        return real(tree, folder, name)

    monkeypatch.setattr(Tree, "open", refused)  # root may read everything
    assert watching.look() == [("created", "b.csv")]
    assert watching.look() == []
    [poison] = watching.poison
    assert "Permission denied" in poison.reason and str(path) in poison.reason
    monkeypatch.undo()
    assert watching.look() == [("created", "a.csv")]

    write(path, "more")
    monkeypatch.setattr(Tree, "open", refused)
    assert watching.look() == []
    monkeypatch.undo()  # it looks as before: only the server's rights, or its disk, are other ones
    assert watching.look() == [("changed", "a.csv")]
    assert (watching.last["size"], len(watching.poison)) == (4, 1)


def test_a_huge_file_is_known_by_its_look(place: Path) -> None:
    watching = Watching(place, hash_up_to=0)
    path = write(place / "a.bin")

    assert watching.look() == [("created", "a.bin")]
    assert watching.last["fingerprint"].startswith("stat:3-")
    os.truncate(path, 2**40)  # sparse
    assert watching.look() == [("changed", "a.bin")]
    was, other = path.stat(), write(place / "b.tmp")
    os.truncate(other, 2**40)
    os.utime(other, ns=(was.st_atime_ns, was.st_mtime_ns))
    os.replace(other, path)
    assert watching.look() == []  # another inode alone is that of another mount


def test_files_with_the_same_content_are_one_event_with_the_setting(place: Path) -> None:
    watching = Watching(place, once_per_content=True)
    write(place / "a.csv", "same")
    write(place / "b.csv", "same")
    write(place / "c.csv", "other")
    watching.look()

    assert len({message.id for message in watching.messages}) == 2 < len(watching.messages) == 3


def test_folders_too_deep_and_paths_too_long_are_reported_and_do_not_stop_the_others(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tree, "DEEPEST", 3)
    monkeypatch.setattr(watched_directory, "LONGEST_PATH", 100)
    write(place / "a" / "b" / "c" / "d" / "deep.csv")
    write(place / ("x" * 100 + ".csv"))
    write(place / "a" / "b" / "ok.csv")

    assert watching.look() == [("created", "a/b/ok.csv")]
    assert watching.look() == []
    assert len(watching.poison) == 2


def test_more_files_than_fit_are_found_scan_by_scan(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates, "MOST", 10)
    monkeypatch.setattr(candidates, "AT_ONCE", 7)
    monkeypatch.setattr(tree, "AT_ONCE", 7)
    for number in range(50):
        write(place / f"{number}.csv")
    seen: list[Any] = []
    while more := watching.look():
        assert len(watching.reader.candidates) <= 10
        seen += more
    assert len(seen) == len(set(seen)) == 50

    for number in range(50):
        (place / f"{number}.csv").rename(place / f"{number}-moved.csv")
    seen = []
    while more := watching.look():
        seen += more
    assert {change for change, _ in seen} == {"renamed"}
    assert len(seen) == 50


def test_a_batch_has_at_most_the_usual_number_of_files(place: Path) -> None:
    watching = Watching(place, settle="0s")
    for number in range(BATCH + 1):
        write(place / f"{number}")
    watching.read()

    assert max(len(watching.read()) for _ in range(3)) <= BATCH


def test_changed_patterns_forget_files_without_an_event_and_another_directory_begins_again(
    watching: Watching, place: Path, tmp_path: Path
) -> None:
    write(place / "a.csv")
    write(place / "a.txt")
    watching.look()

    watching.connect(patterns="*.txt")
    assert watching.look() == [("created", "a.txt")]
    watching.connect(patterns="*")
    assert watching.look() == [("created", "a.csv")]

    other = tmp_path / "other"
    write(other / "a.csv")
    watching.directory = other
    watching.connect(directory=str(other))
    assert watching.look() == [("created", "a.csv")]
    assert WatchedFile.objects.count() == 1


def test_a_file_that_vanishes_while_it_is_opened_is_no_poison(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place / "a.csv")
    real = Tree.open

    def goes(tree: Tree, folder: bytes, name: bytes) -> Any:
        path.unlink()
        return real(tree, folder, name)

    monkeypatch.setattr(Tree, "open", goes)
    assert watching.look() == [] and watching.poison == []
    assert not WatchedFile.objects.exists()


def test_a_new_folder_that_may_not_be_read_does_not_stop_the_others(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watching = Watching(place, has_hints=True, every="1d", settle="0s")
    watching.look()
    real = files.open_beneath

    def refused(fd: int, parts: Any, *flags: int) -> int:
        if parts == [b"private"]:
            raise PermissionError(13, "Permission denied")
        return real(fd, parts, *flags)

    monkeypatch.setattr("triggers.sources.files.tree.open_beneath", refused)  # root may read everything
    (place / "private").mkdir()
    write(place / "a.csv")

    eventually(lambda: watching.read() is None or (watching.messages and watching.poison))
    assert "private" in watching.poison[0].reason


def test_another_file_system_at_the_path_is_another_directory(
    watching: Watching, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(place / "a.csv")
    watching.look()
    path.unlink()
    monkeypatch.setattr(
        os, "fstatvfs", lambda fd: SimpleNamespace(f_fsid=7)
    )  # its first folder has the same inode, as those of ext4 have
    with pytest.raises(SourceError, match="Another directory"):
        watching.look()


def test_other_rights_of_a_file_that_was_passed_over_are_no_change(place: Path) -> None:
    path = write(place / "a.csv")
    watching = Watching(place, begin_with="new")
    watching.look()

    path.chmod(0o600)
    os.link(path, place / "a.bak")
    assert watching.look() == [("created", "a.bak")]
    write(path, "other")
    os.unlink(place / "a.bak")
    assert watching.look() == [("vanished", "a.bak"), ("changed", "a.csv")][::-1]


def test_hints_make_a_look_without_a_scan(place: Path) -> None:
    watching = Watching(place, has_hints=True, every="1d", settle="0s")
    watching.look()
    write(place / "new" / "folder" / "a.csv")
    write(place / "b.csv")

    eventually(lambda: watching.read() is None or len(watching.messages) == 2)
    write(place / "new" / "folder" / "c.csv")
    (place / "new").rename(place / "old")
    eventually(lambda: watching.read() is None or len(watching.messages) == 4)

    assert sorted(map(watching.seen, watching.messages)) == [
        ("created", "b.csv"),
        ("created", "new/folder/a.csv"),
        ("created", "old/folder/c.csv"),
        ("renamed", "old/folder/a.csv"),
    ]


def test_hints_follow_no_link_and_are_as_many_as_there_is_room_for(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "outside" / "folder" / "a.csv")
    (place / "link").symlink_to(tmp_path / "outside")
    (place / "inner").mkdir()
    watching = Watching(place, has_hints=True)
    watching.look()
    assert watching.reader.hints and sorted(watching.reader.hints.folders.values()) == [b"", b"inner"]

    monkeypatch.setattr(hints, "MOST_FOLDERS", 2)
    write(place / "third" / "a.csv")
    watching.connect()
    assert watching.look() == [("created", "third/a.csv")]
    assert len(watching.reader.hints.folders) == 2


def test_more_hints_than_the_system_remembers_are_a_scan(place: Path) -> None:
    watching = Watching(place, has_hints=True, every="1d")
    watching.look()
    assert watching.reader.hints
    overflow = hints.EVENT.pack(-1, hints.OVERFLOW, 0, 0)
    assert watching.reader.hints._take(overflow, set()) is False
