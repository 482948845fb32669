"""The files of a source as they were recorded. Read by the thread of its reader, written with the events (`Batch.keep`)."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from agents.files import FileMetadata
from runs.db.sql import execute, fetch_together

PAGE = 1000  # rows

COLUMNS = "folder, name, size, mtime_ns, ctime_ns, inode, fingerprint, is_reported"
# A ledger grows by thousands of rows before PostgreSQL has statistics of it, and a plan for a small one would read all of it for
# each page, or for each row. So each row is looked up by itself (LATERAL), and statements use the indexes
# whatever the statistics say; a range in the order of an index leaves no other one, also a range of one row.
BY_INDEX = "SELECT set_config('enable_sort', 'off', true), set_config('enable_seqscan', 'off', true)"
AT = f"""
SELECT file.* FROM unnest(%s::bytea[], %s::bytea[]) AS wanted(folder, name), LATERAL (
  SELECT {COLUMNS} FROM triggers_watchedfile file
  WHERE file.source_id = %s::uuid AND (file.folder, file.name) >= (wanted.folder, wanted.name)
    AND (file.folder, file.name) <= (wanted.folder, wanted.name)
  ORDER BY file.folder, file.name LIMIT 1) file
"""  # noqa: S608  (our own parts)
WITH_INODES = f"""
SELECT file.* FROM unnest(%s::bigint[]) AS wanted(inode), LATERAL (
  SELECT {COLUMNS} FROM triggers_watchedfile file
  WHERE file.source_id = %s::uuid AND file.inode BETWEEN wanted.inode AND wanted.inode ORDER BY file.inode LIMIT {PAGE}) file
LIMIT {PAGE}
"""  # noqa: S608  (our own parts)
AFTER = f"""
SELECT {COLUMNS} FROM triggers_watchedfile
WHERE source_id = %s::uuid AND (folder, name) > (%s::bytea, %s::bytea) ORDER BY folder, name LIMIT {PAGE}
"""  # noqa: S608  (our own parts)
COUNT = """
SELECT count(*) FROM (
  SELECT FROM triggers_watchedfile
  WHERE source_id = %s::uuid AND (folder, name) >= (%s::bytea, ''::bytea) AND (folder, name) < (%s::bytea || '\\x00'::bytea, ''::bytea)
  ORDER BY folder, name) file
"""
# One step down the index for each folder.
FOLDERS = f"""
WITH RECURSIVE walk (folder, number) AS (
  (SELECT folder, 1 FROM triggers_watchedfile WHERE source_id = %(source)s::uuid AND (folder, name) >= (%(first)s::bytea, ''::bytea)
   ORDER BY folder, name LIMIT 1)
  UNION ALL
  SELECT (SELECT file.folder FROM triggers_watchedfile file
          WHERE file.source_id = %(source)s::uuid AND (file.folder, file.name) >= (walk.folder || '\\x00'::bytea, ''::bytea)
          ORDER BY file.folder, file.name LIMIT 1), number + 1
  FROM walk WHERE walk.folder IS NOT NULL AND number < {PAGE}
) SELECT folder FROM walk WHERE folder IS NOT NULL
"""  # noqa: S608  (our own parts)
PUT = f"""
INSERT INTO triggers_watchedfile (source_id, {COLUMNS})
SELECT %s::uuid, * FROM unnest(%s::bytea[], %s::bytea[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::text[], %s::boolean[])
ON CONFLICT (source_id, folder, name) DO UPDATE SET size = excluded.size, mtime_ns = excluded.mtime_ns, ctime_ns = excluded.ctime_ns,
  inode = excluded.inode, fingerprint = excluded.fingerprint, is_reported = excluded.is_reported, recorded_at = now()
"""  # noqa: S608  (our own parts)
DROP = """
DELETE FROM triggers_watchedfile WHERE id = ANY(ARRAY(
  SELECT file.id FROM unnest(%s::bytea[], %s::bytea[]) AS gone(folder, name), LATERAL (
    SELECT id FROM triggers_watchedfile file
    WHERE file.source_id = %s::uuid AND (file.folder, file.name) >= (gone.folder, gone.name)
      AND (file.folder, file.name) <= (gone.folder, gone.name)
    ORDER BY file.folder, file.name LIMIT 1) file))
"""


class Path(NamedTuple):
    """A file below the directory of its source."""

    folder: bytes
    name: bytes

    @classmethod
    def of(cls, relative: bytes) -> "Path":
        folder, _, name = relative.rpartition(b"/")
        return cls(folder, name)

    @property
    def relative(self) -> bytes:
        return self.folder + b"/" + self.name if self.folder else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A file as it was recorded. Not reported: it could not be read, and has no event."""

    path: Path
    metadata: FileMetadata
    fingerprint: str = ""
    is_reported: bool = True


@dataclass(kw_only=True)
class Changes:
    """The changes of the ledger by a batch."""

    put: dict[Path, Known] = field(default_factory=dict)
    gone: set[Path] = field(default_factory=set)

    def __len__(self) -> int:
        return len(self.put) + len(self.gone)


class Ledger:
    def __init__(self, source_id: UUID | None) -> None:
        self.source_id = source_id
        self.writes = 0

    def at(self, paths: Sequence[Path]) -> dict[Path, Known]:
        if not paths:
            return {}
        folders, names = zip(*paths, strict=True)
        _, rows = fetch_together((BY_INDEX, ()), (AT, [_array(folders), _array(names), self.source_id]))
        return {known.path: known for known in map(_known, rows)}

    def with_inodes(self, inodes: Sequence[int]) -> list[Known]:
        if not inodes:
            return []
        _, rows = fetch_together((BY_INDEX, ()), (WITH_INODES, [list(inodes), self.source_id]))
        return [_known(row) for row in rows]

    def after(self, path: Path) -> list[Known]:
        """The next PAGE files behind a path."""
        _, rows = fetch_together((BY_INDEX, ()), (AFTER, [self.source_id, *path]))
        return [_known(row) for row in rows]

    def count(self, folder: bytes) -> int:
        """The number of files directly in the folder."""
        _, [(found,)] = fetch_together((BY_INDEX, ()), (COUNT, [self.source_id, folder, folder]))
        return int(found)

    def pages(self, folder: bytes | None = None) -> Iterator[list[Known]]:
        """All files in order, or those directly in a folder; pages are read lazily."""
        last = Path(folder or b"", b"")
        while page := self.after(last):
            last = page[-1].path
            if inside := [known for known in page if folder is None or known.path.folder == folder]:
                yield inside
            if folder is not None and last.folder != folder:
                return

    def folders(self, below: bytes) -> Iterator[list[bytes]]:
        """This folder and those below it that have files, in order; pages are read lazily."""
        first = below
        while True:
            _, rows = fetch_together((BY_INDEX, ()), (FOLDERS, {"source": self.source_id, "first": first}))
            page = [bytes(folder) for (folder,) in rows]
            yield [folder for folder in page if not below or _is_in(folder, below)]
            if len(page) < PAGE or (below and page[-1] > below + b"/\xff"):
                return
            first = page[-1] + b"\x00"

    def write(self, changes: Changes) -> None:
        """Write the changes, in the caller's transaction."""
        self.writes += 1
        if changes.gone:
            folders, names = zip(*changes.gone, strict=True)
            execute(BY_INDEX)
            execute(DROP, [_array(folders), _array(names), self.source_id])
        if changes.put:
            rows = [
                (*known.path, *known.metadata, known.fingerprint, known.is_reported) for known in changes.put.values()
            ]
            execute(PUT, [self.source_id, *map(list, zip(*rows, strict=True))])


def _array(values: Iterable[bytes]) -> str:
    """The text of an array of bytea: the driver takes longer for each element than the server to look it up."""
    return "{" + ",".join([f'"\\\\x{value.hex()}"' for value in values]) + "}"


def _is_in(folder: bytes, outer: bytes) -> bool:
    return folder == outer or folder.startswith(outer + b"/")


def _known(row: tuple[Any, ...]) -> Known:
    folder, name, size, mtime_ns, ctime_ns, inode, fingerprint, is_reported = row
    metadata = FileMetadata(size, mtime_ns, ctime_ns, inode)
    path = Path(bytes(folder), bytes(name))
    return Known(path=path, metadata=metadata, fingerprint=fingerprint, is_reported=is_reported)
