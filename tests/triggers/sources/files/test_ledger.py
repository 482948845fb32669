"""The ledger of a large directory, before PostgreSQL has statistics of it."""

from collections.abc import Callable
from typing import Any

import pytest

from agents.files import FileMetadata
from runs.db.sql import execute, fetch
from tests.support.examples import some_cases
from triggers.models import Source
from triggers.sources.files.ledger import PAGE, Changes, Known, Ledger, Path

FILES = 20 * PAGE
FILL = """
INSERT INTO triggers_watchedfile (source_id, folder, name, size, inode, fingerprint, is_reported)
SELECT %s::uuid, convert_to('folder', 'UTF8'), convert_to(n::text, 'UTF8'), 1, n, '', true FROM generate_series(1, %s::int) n
"""
READ = """
SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'triggers_watchedfile'
"""


# Pages and rows: none yet, and those of a table that was vacuumed while it was empty, or small.
STATISTICS = [(0, -1), (0, 0), (30, 0), (1, 50)]
SET_STATISTICS = "UPDATE pg_class SET relpages = %s, reltuples = %s WHERE relname = 'triggers_watchedfile'"


# A session keeps the height of an index, by which the planner prefers a lower one.
FORGET_HEIGHTS = "UPDATE pg_class SET reltuples = reltuples WHERE relname LIKE 'watched\\_file\\_%%'"


@pytest.fixture
def ledger(db: None, request: pytest.FixtureRequest) -> Ledger:
    """Of many files; its statements were planned while it was empty. The index of paths is the larger one, as of long names that are
    gone."""
    other = Source.objects.create(slug="other", kind="directory", settings={"directory": "/data"})
    execute(FILL, [other.pk, 20 * PAGE])
    execute("UPDATE triggers_watchedfile SET name = name || convert_to(repeat('x', 400), 'UTF8')")
    execute("DELETE FROM triggers_watchedfile")
    execute(FORGET_HEIGHTS)
    execute(SET_STATISTICS, getattr(request, "param", STATISTICS[0]))
    source = Source.objects.create(slug="in", kind="directory", settings={"directory": "/data"})
    ledger = Ledger(source.pk)
    some = [Path(b"folder", b"0")]
    for _ in range(8):
        ledger.at(some)
        ledger.with_inodes([0])
        ledger.after(Path(b"", b""))
        ledger.write(Changes(gone=set(some)))
    execute(FILL, [source.pk, FILES])
    return ledger


def rows_read(by: Callable[[], Any]) -> int:
    [(before,)] = fetch(READ)
    by()
    [(after,)] = fetch(READ)
    return int(after - before)


@pytest.mark.parametrize("ledger", some_cases(STATISTICS), indirect=True)
def test_a_look_at_some_files_reads_no_others(ledger: Ledger) -> None:
    some = [Path(b"folder", str(number).encode()) for number in range(1, 101)]

    assert rows_read(lambda: ledger.at(some)) == 100
    assert rows_read(lambda: ledger.with_inodes(list(range(1, 101)))) == 100
    assert rows_read(lambda: ledger.after(Path(b"folder", b"3"))) == PAGE
    assert rows_read(lambda: ledger.count(b"folder/none")) == 0
    assert rows_read(lambda: list(ledger.folders(b""))) <= 3
    assert rows_read(lambda: ledger.write(Changes(gone=set(some)))) <= 200


def test_paging_through_the_ledger_gives_all_files_in_order(ledger: Ledger) -> None:
    found = [known.path.name for page in ledger.pages() for known in page]

    assert found == sorted(str(number).encode() for number in range(1, FILES + 1))


def test_the_files_and_folders_of_a_ledger_are_counted(ledger: Ledger) -> None:
    for folder in (b"folder/a", b"folder!", b"folder/a/b"):
        known = Known(path=Path(folder, b"x"), metadata=FileMetadata(1, 0, 0, 0))
        ledger.write(Changes(put={known.path: known}))

    assert (ledger.count(b"folder"), ledger.count(b"folder/a"), ledger.count(b"")) == (FILES, 1, 0)
    assert [folder for page in ledger.folders(b"") for folder in page] == [
        b"folder",
        b"folder!",
        b"folder/a",
        b"folder/a/b",
    ]
    assert [folder for page in ledger.folders(b"folder/a") for folder in page] == [b"folder/a", b"folder/a/b"]


def test_files_of_one_inode_are_found_together(ledger: Ledger) -> None:
    link = Known(path=Path(b"other", b"link"), metadata=FileMetadata(1, 0, 0, 7))
    ledger.write(Changes(put={link.path: link}))

    assert {known.path for known in ledger.with_inodes([7])} == {link.path, Path(b"folder", b"7")}
