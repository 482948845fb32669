"""Files of a stack in WAKEFUL_HOME: generated secrets, the servers' URLs, and the processes it started."""

import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from cryptography.fernet import Fernet

from config.stack import children
from config.stack.embedded import EmbeddedError

GENERATED: Mapping[str, Callable[[], str]] = {
    "SECRET_KEY": lambda: secrets.token_urlsafe(50),
    "WAKEFUL_ENCRYPTION_KEYS": lambda: Fernet.generate_key().decode(),
    "WAKEFUL_ADMIN_PASSWORD": lambda: secrets.token_urlsafe(12),
    "WAKEFUL_API_TOKEN": lambda: secrets.token_urlsafe(32),
}


def given(name: str) -> bool:
    """Whether the environment itself sets this variable, directly or by `_FILE`."""
    return name in os.environ or f"{name}_FILE" in os.environ


def keep(home: Path, running: Mapping[str, str]) -> None:
    """Write `home/env`. The settings of every process read it for variables that the environment does not set.

    Generated values are kept: with another encryption key, every stored secret would be unreadable.
    """
    kept = _read(home / "env")
    for name, generate in GENERATED.items():
        kept.setdefault(name, generate())
    for name in ("DATABASE_URL", "REDIS_URL", "WAKEFUL_DEMO"):
        kept.pop(name, None)
    lines = [f"{name}='{value}'\n" for name, value in {**kept, **running}.items()]
    making = home / "env.new"
    with open(os.open(making, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.writelines(["# Written by `manage.py up`; the environment wins over it.\n", *lines])
    making.rename(home / "env")


def remember_processes(home: Path, pids: Mapping[str, int]) -> None:
    """Record the running processes, so that the next start finds any that are left."""
    running = {name: [pid, children.identity_of(pid)] for name, pid in pids.items()}
    (home / "processes").write_text(json.dumps(running))


def wait_for_leftovers(home: Path, say: Callable[[str], None], patience: float) -> None:
    """Wait for processes of an earlier stack whose supervisor died. EmbeddedError names those that do not end in `patience` seconds."""
    deadline = time.monotonic() + patience
    announced = False
    while left := _leftovers(home):
        names = ", ".join(f"{name} ({pid})" for name, pid in left.items())
        if time.monotonic() > deadline:
            pids = " ".join(str(pid) for pid in left.values())
            raise EmbeddedError(
                f"An earlier stack on {home} died without stopping: {names} still run. "
                f"End them with `kill {pids}` (`kill -9 {pids}` if that does not help), then start again."
            )
        if not announced:
            say(f"An earlier stack on {home} died; waiting for its processes to finish: {names}")
            announced = True
        time.sleep(0.2)


def _leftovers(home: Path) -> dict[str, int]:
    try:
        recorded = json.loads((home / "processes").read_text())
    except (OSError, ValueError):
        return {}
    # A pid may have been reused; with its start time it is the process we started.
    return {
        name: pid for name, (pid, identity) in recorded.items() if identity and children.identity_of(pid) == identity
    }


def _read(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    pairs = [line.partition("=") for line in lines if "=" in line and not line.startswith("#")]
    return {name: value.strip("'") for name, _, value in pairs}
