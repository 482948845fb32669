"""Files that events name, such as those of `on.file`.

    with open_file(run.event) as file:
        for row in csv.reader(io.TextIOWrapper(file)):
            ...

A file is opened only below WAKEFUL_FILE_ROOTS, never through a symbolic link below them, and only while it still is the
file that the event describes. An object (s3://…) is opened by the source that lists its bucket, and read as it arrives. In a durable
agent call `open_file` inside a step: the file may be gone when the body is replayed.
"""

import base64
import hashlib
import os
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from errno import EACCES
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from .exceptions import Permanent
from .kernel.object_stores import ObjectVersion, open_object

if TYPE_CHECKING:
    from .run import Event

CHUNK = 2**20
MOST_BYTES = 2**30  # of an object that is opened, unless the agent allows more
OBJECT = b"s3://"
SIGNED = 2**63  # numbers of PostgreSQL have a sign, those of file systems may use the whole 64 bits
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Do not block on open: the path may name a pipe by now.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class FileRefused(Permanent):
    """The event names no file, or a file that this process may not open."""


class FileChanged(Permanent):
    """The file is not the one that the event describes: it was changed, moved or removed meanwhile. A later event
    reports that change.
    """


class FileUnavailable(OSError):
    """The store of the object does not answer now: another attempt may open it."""


class FileMetadata(NamedTuple):
    """The metadata of a file, which shows whether it has changed."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, found: os.stat_result) -> "FileMetadata":
        return cls(found.st_size, _signed(found.st_mtime_ns), _signed(found.st_ctime_ns), found.st_ino % SIGNED)

    @property
    def fingerprint(self) -> str:
        """A fingerprint from metadata, for files that are too large to hash. FUSE and some network file systems give a
        file another inode on each host and after each mount.
        """
        return f"stat:{self.size}-{self.mtime_ns}"


@contextmanager
def open_file(event: "Event", *, most: int | None = None) -> Iterator[BinaryIO]:
    """Open the file or the object of an event for reading. Raises FileChanged if it is not the one that the event describes, also at
    the end of the block if the file was written to meanwhile; FileRefused if it may not be opened, or has more than `most` bytes
    (of an object, at most a GiB unless `most` is given); FileUnavailable if the store of an object does not answer. An object can be read
    once, from its beginning to its end.
    """
    path, fingerprint = path_of(event.data), event.data.get("fingerprint")
    if not isinstance(fingerprint, str) or not fingerprint:
        raise FileRefused(f"The event {event.id} has no fingerprint of its file.")
    if path.startswith(OBJECT):
        with open_object(_object_of(event, path, fingerprint), most=MOST_BYTES if most is None else most) as content:
            yield content
        return
    with os.fdopen(_open(path), "rb") as file:
        before = FileMetadata.of(os.fstat(file.fileno()))
        if most is not None and before.size > most:
            raise FileRefused(f"{_shown(path)} has {before.size:,} bytes; open_file reads at most {most:,}.")
        if (
            fingerprint_of(file, before, like=fingerprint) != fingerprint
            or FileMetadata.of(os.fstat(file.fileno())) != before
        ):
            raise FileChanged(f"{_shown(path)} has changed since its event.")
        file.seek(0)
        yield file
        if not file.closed and FileMetadata.of(os.fstat(file.fileno()))[:2] != before[:2]:
            raise FileChanged(f"{_shown(path)} was changed while it was read.")


def path_of(data: object) -> bytes:
    """The path in the data of an event of a file."""
    if not isinstance(data, dict) or not isinstance(data.get("path"), str):
        raise FileRefused("The event names no file: its data has no path.")
    try:
        exact = data.get("path_bytes")
        path = base64.b64decode(exact, validate=True) if isinstance(exact, str) else os.fsencode(data["path"])
    except ValueError:
        path = b""
    if not path or b"\0" in path:
        raise FileRefused("The event names no file: its path is none.")
    return path


def _object_of(event: "Event", path: bytes, fingerprint: str) -> ObjectVersion:
    bucket, _, key = path.decode(errors="replace").removeprefix(OBJECT.decode()).partition("/")
    etag, version = fingerprint.removeprefix("etag:"), event.data.get("version") or ""
    if not bucket or not key or not etag or etag == fingerprint or not isinstance(version, str):
        raise FileRefused(f"The event {event.id} names no object: it has no bucket, key or etag.")
    return ObjectVersion(bucket=bucket, key=key, etag=etag, version=version, source=event.source)


def open_beneath(folder: int, parts: Sequence[bytes], flags: int = FILE) -> int:
    """Open a file below an open folder, through no symbolic link. Raises OSError."""
    *folders, name = parts
    if any(part in (b"", b".", b"..") for part in parts):
        raise PermissionError(EACCES, "the path leaves its directory")
    inner = os.dup(folder)
    try:
        for part in folders:
            outer, inner = inner, os.open(part, FOLDER, dir_fd=inner)
            os.close(outer)
        return os.open(name, flags, dir_fd=inner)
    finally:
        os.close(inner)


def fingerprint_of(
    file: BinaryIO, metadata: FileMetadata, *, like: str = "sha256:", seconds: float | None = None
) -> str:
    """The digest of the file's content. The digest of its metadata instead if `like` is such a one, or if reading takes
    longer than these seconds.
    """
    if not like.startswith("sha256:"):
        return metadata.fingerprint
    until = None if seconds is None else time.monotonic() + seconds
    digest = hashlib.sha256()
    while chunk := file.read(CHUNK):
        digest.update(chunk)
        if until is not None and time.monotonic() > until:
            return metadata.fingerprint
    return f"sha256:{digest.hexdigest()}"


def roots() -> list[bytes]:
    """The directories of WAKEFUL_FILE_ROOTS: each as configured, with its resolved path."""
    from django.conf import settings

    named = [os.path.normpath(os.fsencode(root)) for root in settings.WAKEFUL_FILE_ROOTS]
    return [*named, *(os.path.realpath(root) for root in named)]


def is_beneath(path: bytes, root: bytes) -> bool:
    return path == root or path.startswith(root.rstrip(b"/") + b"/")


def _open(path: bytes) -> int:
    root = next((root for root in roots() if is_beneath(path, root) and path != root), None)
    if root is None:
        raise FileRefused(f"{_shown(path)} is not below one of WAKEFUL_FILE_ROOTS.")
    try:
        folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            file = open_beneath(folder, path[len(root.rstrip(b"/")) + 1 :].split(b"/"))
        finally:
            os.close(folder)
    except (FileNotFoundError, NotADirectoryError):
        raise FileChanged(f"{_shown(path)} is not there any more.") from None
    except OSError as error:
        raise FileRefused(f"{_shown(path)} cannot be opened: {error.strerror}.") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise FileRefused(f"{_shown(path)} is not a regular file.")
    return file


def _shown(path: bytes) -> str:
    return path.decode(errors="backslashreplace")


def _signed(number: int) -> int:
    return max(min(number, SIGNED - 1), -SIGNED)
