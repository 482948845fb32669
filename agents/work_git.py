"""Git in a repository below WAKEFUL_WORK_ROOTS: look, and commit to a new branch. Nothing is pushed, fetched or checked out, no hook runs,
and neither the branch that is checked out nor its index changes."""

import os
import re
import signal
import stat
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from agents.files import is_beneath
from agents.work_files import WorkFileRefused, names_in, place_of, work_roots

MOST = 60_000  # bytes of an answer
CUT = f"… cut after {MOST:,} bytes"
SECONDS = 20.0
BRANCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,99}")
# The configuration of a repository is that of a person; the tools write no file of git. What it could start is off all the same.
OPTIONS = (
    "--no-pager", "--literal-pathspecs", "-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false",
    "-c", "protocol.allow=never", "-c", "color.ui=false", "-c", "core.quotePath=true", "-c", "log.showSignature=false",
)  # fmt: skip
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C", "HOME": "/nonexistent",
}  # fmt: skip
AUTHOR = "Wakeful <wakeful@localhost>"


class GitFailed(ValueError):
    """Git refused, or took too long; with its message."""


class Repository:
    """A repository, or a worktree of one, below a root. WorkFileRefused: it is none."""

    def __init__(self, path: str) -> None:
        place = place_of(path)
        names_in(path)  # through no link
        self.path, self._git = place.path, os.path.join(place.path, ".git")
        try:
            mode = os.lstat(self._git).st_mode
        except FileNotFoundError:
            raise WorkFileRefused(f"{path} is no git repository") from None
        if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise WorkFileRefused(f"{path}: its .git is neither a folder nor a file")
        homes = self.git("rev-parse", "--absolute-git-dir", "--git-common-dir").splitlines()
        self._homes = [os.path.realpath(os.path.join(self.path, line)) for line in homes]
        if not all(_is_below_a_root(home) for home in self._homes):
            raise WorkFileRefused(f"{path} belongs to a repository that is not below the roots")
        self._check_configuration()

    def _check_configuration(self) -> None:
        """Its configuration names programs, the filters, that git starts. A file that it includes must be none that tools can write."""
        known = self.git("config", "--list", "--show-origin", "--name-only")
        if known.endswith(CUT):
            raise WorkFileRefused(f"the configuration of {self.path} is too long")
        for line in known.split("\n"):
            kind, _, file = line.partition("\t")[0].partition(":")
            included = os.path.realpath(os.path.join(self.path, _unquoted(file)))
            is_own = any(is_beneath(included.encode(), home.encode()) for home in self._homes)
            if kind == "file" and not is_own and _is_below_a_root(included):
                raise WorkFileRefused(f"the configuration of {self.path} includes {file}, which is below the roots")

    def status(self) -> str:
        return self.git("status", "--short", "--branch", "--ignore-submodules=all", "--no-renames")

    def log(self, most: int = 30) -> str:
        return self.git("log", f"--max-count={most}", "--format=%h %cs %an: %s", "--no-show-signature")

    def branches(self) -> str:
        """Each branch with its last commit, and whether all of it is in the one that is checked out."""
        names = "%(refname:short) %(committerdate:iso-strict) %(objectname:short) %(subject)"
        merged = set(self._lines("for-each-ref", "--merged=HEAD", "--format=%(refname:short)", "refs/heads"))
        lines = self._lines("for-each-ref", f"--format={names}", "--sort=-committerdate", "refs/heads")
        return "\n".join(f"{line}{' [merged]' if line.split(' ')[0] in merged else ''}" for line in lines)

    def diff(self, against: str = "HEAD") -> str:
        """What the files have that a branch or commit has not."""
        commit = self.commit_of(against)
        return self.git("diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "--no-color", commit, "--")

    def commit_of(self, name: str) -> str:
        if not BRANCH.fullmatch(name):
            raise GitFailed(f"{name[:100]!r} is no name of a branch or commit")
        return self.git("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}").strip()

    def commit(self, branch: str, message: str, paths: Sequence[str], *, at: datetime, key: str) -> str:
        """Commit these files as they are now, on top of what is checked out, to a new branch; its id. A repetition with the same key
        finds the commit. GitFailed: the branch is another's, or nothing has changed."""
        if not BRANCH.fullmatch(branch):
            raise GitFailed(f"{branch[:100]!r} cannot be the name of a branch")
        self.git("check-ref-format", "--branch", branch)
        for path in paths:
            place_of(f"{self.path}/{path}")
        trailer = f"Wakeful-Step: {key}"
        if known := self._tip(branch):
            if trailer in self.git("show", "--no-patch", "--format=%B", known, "--"):
                return known
            raise GitFailed(f"branch {branch} is there already; name a new one")
        base = self.commit_of("HEAD")
        with tempfile.TemporaryDirectory(prefix="wakeful-git-") as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            self.git("read-tree", base, extra=index)
            self.git("add", "--all", "--", *paths, extra=index)
            tree = self.git("write-tree", extra=index).strip()
        if tree == self.git("rev-parse", f"{base}^{{tree}}").strip():
            raise GitFailed("nothing to commit: these files are as in the commit that is checked out")
        name, _, mail = AUTHOR.partition(" <")
        who = {"NAME": name, "EMAIL": mail.rstrip(">"), "DATE": f"{int(at.timestamp())} +0000"}
        signed = {f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER") for what, value in who.items()}
        made = self.git("commit-tree", tree, "-p", base, "-m", message, "-m", trailer, extra=signed).strip()
        # Not if the branch came meanwhile.
        self.git("update-ref", f"refs/heads/{branch}", made, "0" * len(made), extra=signed)
        return made

    def _tip(self, branch: str) -> str:
        return self.git("for-each-ref", "--format=%(objectname)", f"refs/heads/{branch}").strip()

    def _lines(self, *words: str) -> list[str]:
        """No other character of a name or a subject ends a line."""
        return self.git(*words).rstrip("\n").split("\n")

    def git(self, *words: str, extra: dict[str, str] | None = None) -> str:
        """What git prints, at most 60,000 bytes. GitFailed: it refused, or took longer than 20 s."""
        command = ["git", "-C", self.path, f"--git-dir={self._git}", f"--work-tree={self.path}", *OPTIONS, *words]
        environment = {"PATH": os.environ.get("PATH", os.defpath), **ENVIRONMENT, **(extra or {})}
        with tempfile.TemporaryFile() as errors:
            try:
                process = subprocess.Popen(  # noqa: S603 (no shell; the words are checked)
                    command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                    start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                raise GitFailed(f"git cannot be started: {error.strerror}") from error
            output, is_late = _output_of(process)
            if is_late:
                raise GitFailed(f"git {words[0]} took longer than {SECONDS:g} s")
            is_cut = len(output) > MOST
            if process.returncode and not is_cut:
                errors.seek(0)
                said = errors.read(1_000).decode(errors="replace").replace("\0", "").strip()
                raise GitFailed(f"git {words[0]}: {said or 'it found nothing'}")
        text = output[:MOST].decode(errors="replace").replace("\0", "")
        return f"{text}\n{CUT}" if is_cut else text


def _is_below_a_root(path: str) -> bool:
    return any(is_beneath(path.encode(), os.path.realpath(root).encode()) for root in work_roots())


def _unquoted(name: str) -> str:
    """A name that git has quoted as C does, byte for byte."""
    return name[1:-1].encode().decode("unicode_escape").encode("latin-1").decode() if name.startswith('"') else name


def _output_of(process: "subprocess.Popen[bytes]") -> tuple[bytes, bool]:
    """The first bytes that it prints, and whether it took too long. No process is left."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(SECONDS, end)
    timer.start()
    with process:
        try:
            output = process.stdout.read(MOST + 1) if process.stdout else b""
            if len(output) > MOST:
                _kill(process)
            process.wait()
        except BaseException:  # the step took too long, or the worker stops
            _kill(process)
            raise
        finally:
            timer.cancel()
    return output, late.is_set()


def _kill(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
