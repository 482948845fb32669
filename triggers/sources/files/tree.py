"""A directory and what is below it, through no symbolic link and on one file system, in bounded memory."""

import os
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from errno import ELOOP, EXDEV
from types import TracebackType
from typing import BinaryIO, Self

from agents.files import FOLDER, FileMetadata, open_beneath

AT_ONCE = 1000  # names
DEEPEST = 100  # folders within folders: each is an open file while the walk is below it
OTHER_FILE_SYSTEM = "another file system is mounted here, which is not read: make it a source of its own"


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """Some files of a folder, in no order."""

    folder: bytes
    names: list[bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """All files of this folder were in the parts before."""

    folder: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """A folder that cannot be read, and why."""

    folder: bytes
    reason: str


class Tree:
    """An open directory. What is done with it stays in it, wherever its path leads meanwhile."""

    def __init__(self, path: bytes) -> None:
        self.path = path
        self.fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        found = os.fstat(self.fd)
        self.device, self.inode = found.st_dev, FileMetadata.of(found).inode
        # The first folder of many file systems has the same inode; the number of a device may be another one after a restart.
        self.identity = f"{os.fstatvfs(self.fd).f_fsid:x}-{self.inode}"
        self._last: tuple[bytes, int] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._forget()
        os.close(self.fd)

    def is_at_its_path(self) -> bool:
        """Whether the path still leads to the open folder."""
        with suppress(OSError):
            found = os.stat(self.path)
            return (found.st_dev, FileMetadata.of(found).inode) == (self.device, self.inode)
        return False

    def now(self) -> datetime | None:
        """The time by the clock of its file system; None: not known here, such as of a file server. Nothing in it is changed."""
        if os.major(self.device):  # a disk of this host
            return datetime.now(UTC)
        try:
            fd = os.open(b".", os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o600, dir_fd=self.fd)  # it has no name
        except (AttributeError, OSError):  # another operating system; a file server, or not to be written
            return None
        try:
            return changed_at(fd)
        finally:
            os.close(fd)

    def metadata(self, folder: bytes, name: bytes) -> FileMetadata | None:
        """The metadata of the file; None if there is no regular file. Raises OSError if it cannot be read."""
        try:
            found = os.stat(name, dir_fd=self._folder(folder), follow_symlinks=False)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileMetadata.of(found) if stat.S_ISREG(found.st_mode) else None

    def try_metadata(self, folder: bytes, name: bytes) -> FileMetadata | None:
        """How the file looks; None if there is none, or that cannot be known."""
        with suppress(OSError):
            return self.metadata(folder, name)
        return None

    def open(self, folder: bytes, name: bytes) -> BinaryIO:
        return os.fdopen(open_beneath(self._folder(folder), [name]), "rb")

    def walk(
        self, start: bytes, enters: Callable[[bytes], bool], opened: Callable[[bytes, int], None] | None = None
    ) -> Iterator[Part | Listed | Unread]:
        """The files of a folder and of those below it whose names may be entered; `opened` sees each folder before it is listed."""
        stack: list[_Open] = []
        try:
            yield from self._enter(stack, start, lambda: self._fresh(start))
            while stack:
                if opened and not stack[-1].is_begun:
                    opened(stack[-1].folder, stack[-1].fd)
                stack[-1].is_begun = True
                yield from self._next(stack, enters)
        finally:
            for each in stack:
                each.close()

    def _fresh(self, folder: bytes) -> int:
        # A duplicate of a descriptor would share its place in the listing.
        return open_beneath(self.fd, folder.split(b"/"), FOLDER) if folder else os.open(b".", FOLDER, dir_fd=self.fd)

    def _next(self, stack: "list[_Open]", enters: Callable[[bytes], bool]) -> Iterator[Part | Listed | Unread]:
        top = stack[-1]
        names: list[bytes] = []
        inner: bytes | None = None
        is_listed = False
        try:
            for entry in top.entries:
                name = os.fsencode(entry.name)
                if entry.is_dir(follow_symlinks=False):
                    if enters(name):
                        inner = name
                        break
                elif entry.is_file(follow_symlinks=False):
                    names.append(name)
                    if len(names) == AT_ONCE:
                        break
            else:
                stack.pop().close()
                is_listed = True
        except OSError as error:
            stack.pop().close()
            yield Unread(folder=top.folder, reason=_reason(error))
        if names:
            yield Part(folder=top.folder, names=names)
        if is_listed:
            yield Listed(folder=top.folder)
        if inner is not None:
            folder = top.folder + b"/" + inner if top.folder else inner
            yield from self._enter(stack, folder, lambda: os.open(inner, FOLDER, dir_fd=top.fd))

    def _enter(self, stack: "list[_Open]", folder: bytes, open: Callable[[], int]) -> Iterator[Unread]:
        if len(stack) == DEEPEST:
            yield Unread(folder=folder, reason=f"it is below {DEEPEST} folders")
            return
        try:
            opened = _Open(folder, open())
        except (FileNotFoundError, NotADirectoryError):
            return  # it went meanwhile
        except OSError as error:
            if not folder:
                raise
            yield Unread(folder=folder, reason=_reason(error))
            return
        if opened.device != self.device:
            opened.close()
            yield Unread(folder=folder, reason=OTHER_FILE_SYSTEM)
        else:
            stack.append(opened)

    def _folder(self, folder: bytes) -> int:
        """The folder, open until another one is requested. Raises OSError."""
        if not folder:
            return self.fd
        if self._last is None or self._last[0] != folder:
            self._forget()
            try:
                fd = open_beneath(self.fd, folder.split(b"/"), FOLDER)
            except OSError as error:
                if error.errno == ELOOP:
                    raise NotADirectoryError(*error.args) from None
                raise
            if os.fstat(fd).st_dev != self.device:
                os.close(fd)
                raise PermissionError(EXDEV, OTHER_FILE_SYSTEM)
            self._last = folder, fd
        return self._last[1]

    def _forget(self) -> None:
        if self._last:
            os.close(self._last[1])
            self._last = None


@dataclass(slots=True)
class _Open:
    folder: bytes
    fd: int
    is_begun: bool = False
    device: int = field(init=False)
    entries: "Iterator[os.DirEntry[str]]" = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.device, self.entries = os.fstat(self.fd).st_dev, os.scandir(self.fd)
        except OSError:
            os.close(self.fd)
            raise

    def close(self) -> None:
        self.entries.close()  # type: ignore[attr-defined]
        os.close(self.fd)


def changed_at(fd: int) -> datetime:
    return datetime.fromtimestamp(FileMetadata.of(os.fstat(fd)).ctime_ns / 1e9, UTC)


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
