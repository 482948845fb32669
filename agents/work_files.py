"""Text files below WAKEFUL_WORK_ROOTS, which tools of agents and pages of the admin read and write.

A path leads through no symbolic link below its root, never out of it, and into no folder of git. A file is replaced as a whole, and only
while it has the content that its writer has read (compare-and-set by digest), so no edit of another program is lost unseen.
"""

import fcntl
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from errno import EEXIST, ELOOP, ENOTDIR
from hashlib import sha256

from agents.files import FILE, FOLDER, is_beneath

MOST_BYTES = 1_000_000  # of a file
MOST_NAMES = 1_000  # of a folder that is listed
MOST_PARTS = 30  # names below a root
PATH_LENGTH = 2_000
LOCK_SECONDS = 5.0
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# What macOS ignores in a name: with one of these, ".git" would still be the folder of git.
IGNORED = dict.fromkeys([*range(0x200C, 0x2010), *range(0x202A, 0x202F), *range(0x206A, 0x2070), 0xFEFF])


class WorkFileRefused(ValueError):
    """The path may not be used, or it is no text file."""


class WorkFileChanged(ValueError):
    """The file does not have the content that was read: another program wrote it meanwhile."""


@dataclass(frozen=True, kw_only=True)
class WorkFile:
    """A text file as it was read. `digest` names its content to the one who writes it."""

    path: str
    text: str
    digest: str


@dataclass(frozen=True, kw_only=True)
class Place:
    """A path below a root: the root, and the names that lead from there to it."""

    root: str
    parts: tuple[str, ...]

    @property
    def path(self) -> str:
        return os.path.join(self.root, *self.parts)


def digest_of(text: str) -> str:
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def work_roots() -> list[str]:
    from django.conf import settings

    return [os.path.normpath(root) for root in settings.WAKEFUL_WORK_ROOTS if os.path.isabs(root)]


def place_of(path: str) -> Place:
    """The place of an absolute path, or of one below the first root. WorkFileRefused: it is none below a root."""
    roots = work_roots()
    if not roots:
        raise WorkFileRefused("WAKEFUL_WORK_ROOTS is empty: it names the directories below which files may be used")
    if not path.strip() or len(path.encode(errors="replace")) > PATH_LENGTH or not path.isprintable():
        raise WorkFileRefused(f"a path has 1 to {PATH_LENGTH:,} printable characters")
    absolute = path if path.startswith("/") else f"{roots[0].rstrip('/')}/{path}"
    for root in roots:
        if is_beneath(absolute.encode(), root.encode()) and absolute.rstrip("/") != root.rstrip("/"):
            parts = absolute[len(root.rstrip("/")) :].strip("/").split("/")
            if len(parts) > MOST_PARTS:
                raise WorkFileRefused(f"a path has at most {MOST_PARTS} names below its root")
            return Place(root=root, parts=tuple(_checked(part, path) for part in parts))
    raise WorkFileRefused(f"{path} is not below one of {', '.join(roots)}")


def read_work_file(path: str) -> WorkFile | None:
    """The file; None: there is none. WorkFileRefused: it may not be read, or is no text of at most a megabyte."""
    place = place_of(path)
    try:
        with _raised(place), _opened(place.root, place.parts[:-1]) as folder:
            content = _content(folder, place)
    except FileNotFoundError:
        return None
    if content is None:
        return None
    text = _decoded(content, place)
    return WorkFile(path=place.path, text=text, digest=digest_of(text))


def write_work_file(path: str, text: str, *, replaces: str) -> str:
    """Write the whole file, and return its new digest. `replaces` is the digest of what it has now; "": there is none yet, and folders
    that its path names are made. A file that has this text already is left alone. WorkFileChanged: it has another content."""
    place, content = place_of(path), _encoded(text)
    with _folder_to_write(place) as (folder, is_locked):
        known = _content(folder, place)
        if known == content:
            return digest_of(text)
        if (known is not None and not replaces) or (known is None and replaces):
            raise WorkFileChanged(
                f"{place.path} {'is there already' if known is not None else 'is gone'}: read it again"
            )
        if known is not None and f"sha256:{sha256(known).hexdigest()}" != replaces:
            raise WorkFileChanged(f"{place.path} has another content than the one that was read: read it again")
        _replace(folder, place, content, part=_part(folder, place, is_locked), is_new=known is None)
    return digest_of(text)


def append_work_file(path: str, text: str, *, mark: str) -> bool:
    """Append a text that contains `mark`, on a line of its own, unless the file contains that mark already; was it appended? What others
    write to the file meanwhile stays: it is not replaced."""
    place, content = place_of(path), _encoded(text)
    with _folder_to_write(place) as (folder, _):
        file = os.open(place.parts[-1], APPEND, 0o644, dir_fd=folder)
        try:
            _check_regular(file, place)
            known = _read(file, place)
            if mark.encode() in known:
                return False
            if known and not known.endswith(b"\n"):
                content = b"\n" + content
            if len(known) + len(content) > MOST_BYTES:
                raise WorkFileRefused(f"{place.path} would have more than {MOST_BYTES:,} bytes")
            size = os.fstat(file).st_size
            try:
                _write(file, content)
            except OSError:
                with suppress(OSError):
                    os.ftruncate(file, size)  # a full disk leaves no half of a text
                raise
            os.fsync(file)
        finally:
            os.close(file)
    return True


def names_in(path: str) -> list[str]:
    """The names in a folder, those of folders with a slash, at most 1,000. WorkFileRefused: it is none. "": the first root."""
    if not path.strip("/ "):
        path = next(iter(work_roots()), "/")
    is_root = path.rstrip("/") in [root.rstrip("/") for root in work_roots()]
    place = Place(root=path.rstrip("/"), parts=()) if is_root else place_of(path)
    try:
        with _raised(place), _opened(place.root, place.parts) as folder, os.scandir(folder) as entries:
            found = [f"{one.name}/" if one.is_dir(follow_symlinks=False) else one.name for one in _some(entries)]
    except FileNotFoundError:
        raise WorkFileRefused(f"{place.path} is not there") from None
    return sorted(name.encode(errors="replace").decode() for name in found if not _is_of_git(name.rstrip("/")))


def _some(entries: Iterator[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    for number, entry in enumerate(entries):
        if number == MOST_NAMES:
            return
        yield entry


def _checked(part: str, path: str) -> str:
    if part in ("", ".", ".."):
        raise WorkFileRefused(f"{path}: a path has no empty part, no . and no ..")
    if _is_of_git(part):
        raise WorkFileRefused(f"{path}: the folder of git is not to be read or written")
    return part


def _is_of_git(name: str) -> bool:
    """Also in the spellings that a file system takes for the same name: what is written there could be executed."""
    plain = _plain(name)
    return plain == ".git" or plain.startswith("git~")


def _plain(name: str) -> str:
    return name.translate(IGNORED).casefold().rstrip(". ").partition(":")[0]


def _is_folder_of_git(folder: int) -> bool:
    """Under any name: that of a bare repository is one of a person's choice."""
    return _has(folder, "HEAD") and (_has(folder, "commondir") or (_has(folder, "objects") and _has(folder, "refs")))


def _has(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True


@contextmanager
def _folder_to_write(place: Place) -> Iterator[tuple[int, bool]]:
    """The folder of a file, made if it is not there, and whether it is locked."""
    # With HEAD beside what else may be written, a folder would be a repository, whose configuration git executes for a person who enters.
    if _plain(place.parts[-1]) == "head":
        raise WorkFileRefused(f"{place.path}: a file of this name is one of git")
    try:
        with (
            _raised(place),
            _opened(place.root, place.parts[:-1], is_made=True) as folder,
            _locked(folder, place) as is_locked,
        ):
            yield folder, is_locked
    except FileNotFoundError:
        raise WorkFileChanged(f"{place.path} was moved or removed meanwhile: read it again") from None


@contextmanager
def _opened(root: str, parts: tuple[str, ...], *, is_made: bool = False) -> Iterator[int]:
    """The folder that these names lead to from the root, through no link and no folder of git. Raises OSError."""
    try:
        inner = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        raise WorkFileRefused(f"the root {root} is not there") from None
    try:
        _check_not_of_git(inner, root)
        for part in parts:
            if is_made:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=inner)
            outer, inner = inner, os.open(part, FOLDER, dir_fd=inner)
            os.close(outer)
            _check_not_of_git(inner, part)
        yield inner
    finally:
        os.close(inner)


def _check_not_of_git(folder: int, name: str) -> None:
    if _is_folder_of_git(folder):
        raise WorkFileRefused(f"{name} is a folder of git, which is not to be read or written")


@contextmanager
def _raised(place: Place) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "leads through a symbolic link, or is no folder" if error.errno in (ELOOP, ENOTDIR) else error.strerror
        raise WorkFileRefused(f"{place.path}: {why}") from error


@contextmanager
def _locked(folder: int, place: Place) -> Iterator[bool]:
    """One of our writers at a time in a folder; a file system without such locks has none."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_locked = True
            break
        except BlockingIOError:
            if time.monotonic() > until:
                raise WorkFileRefused(
                    f"{place.path}: another process has been writing in its folder for long"
                ) from None
            time.sleep(0.05)
        except OSError:
            is_locked = False
            break
    yield is_locked  # closing the folder gives the lock back


def _content(folder: int, place: Place) -> bytes | None:
    try:
        file = os.open(place.parts[-1], FILE, dir_fd=folder)
    except FileNotFoundError:
        return None
    try:
        _check_regular(file, place)
        return _read(file, place)
    finally:
        os.close(file)


def _check_regular(file: int, place: Place) -> None:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise WorkFileRefused(f"{place.path} is not a regular file")


def _read(file: int, place: Place) -> bytes:
    with os.fdopen(os.dup(file), "rb") as opened:
        opened.seek(0)
        content = opened.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        raise WorkFileRefused(f"{place.path} has more than {MOST_BYTES:,} bytes")
    return content


def _decoded(content: bytes, place: Place) -> str:
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise WorkFileRefused(f"{place.path} is no text in UTF-8") from None
    if "\0" in text:
        raise WorkFileRefused(f"{place.path} is no text: it contains NUL")
    return text


def _encoded(text: str) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError:
        raise WorkFileRefused("the text has characters that UTF-8 cannot write") from None
    if len(content) > MOST_BYTES or b"\0" in content:
        raise WorkFileRefused(f"a text has at most {MOST_BYTES:,} bytes, and no NUL")
    return content


def _part(folder: int, place: Place, is_locked: bool) -> str:
    """The name of the new content until it is complete. Of a file it is always the same, so that killed writers leave one at most; without
    a lock it is a new one."""
    if not is_locked:
        return f".wakeful-{secrets.token_hex(8)}.part"
    part = f".wakeful-{sha256(place.parts[-1].encode()).hexdigest()[:16]}.part"
    with suppress(FileNotFoundError):
        os.unlink(part, dir_fd=folder)
    return part


def _replace(folder: int, place: Place, content: bytes, *, part: str, is_new: bool) -> None:
    """Complete or not at all: what reads the file meanwhile sees the old content or the new one."""
    name = place.parts[-1]
    file = os.open(part, NEW, 0o644, dir_fd=folder)
    try:
        try:
            if not is_new:
                mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
                with suppress(PermissionError):
                    os.fchmod(file, stat.S_IMODE(mode) & 0o777)
            _write(file, content)
            os.fsync(file)
        finally:
            os.close(file)
        if is_new:
            _link(folder, part, name, place)
        else:
            os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)


def _link(folder: int, part: str, name: str, place: Place) -> None:
    """Give a new file its name, unless another program was first."""
    try:
        os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
    except OSError as error:
        if error.errno == EEXIST:
            raise WorkFileChanged(f"{place.path} is there already: read it again") from None
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)  # a file system without hard links


def _write(file: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(file, left) :]
