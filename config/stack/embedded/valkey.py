"""The embedded Valkey."""

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import redis

from config.stack import children
from config.stack.embedded.binaries import find_valkey
from config.stack.embedded.errors import EmbeddedError
from config.stack.embedded.server import HOST, Server


class Valkey(Server):
    name = "Valkey"
    stop_signal = signal.SIGTERM
    command_names: ClassVar[tuple[str, ...]] = ("valkey-server", "redis-server")
    patience = 30.0

    def __init__(self, home: Path, *, say: Callable[[str], None] = print) -> None:
        place = home / "valkey"
        try:
            place.mkdir(mode=0o700, exist_ok=True)
        except PermissionError:
            raise EmbeddedError(f"{home} belongs to another user. Set WAKEFUL_HOME to a folder of your own.") from None
        super().__init__(place, say=say)

    @property
    def url(self) -> str:
        return f"redis://:{self.password}@{HOST}:{self.port}/0"

    def spawn(self) -> subprocess.Popen[bytes]:
        self.stop_orphan(self.place / "pid")
        # In a file, not on the command line: every user of the machine may read that.
        self._remember("valkey.conf", "\n".join(f"{name} {value}" for name, value in self._settings().items()))
        with self.log.open("wb") as log:
            return children.spawn(
                [find_valkey(), self.place / "valkey.conf"],
                env={"LC_ALL": "C"},
                output=log,
                cwd=self.place,
                farewell=self.stop_signal,
            )

    def is_ready(self) -> bool:
        try:
            with redis.Redis.from_url(self.url, socket_connect_timeout=2, socket_timeout=2) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def flush(self) -> None:
        """FLUSHALL: everything the broker held is gone."""
        with redis.Redis.from_url(self.url) as client:
            client.flushall()

    def _settings(self) -> dict[str, str]:
        return {
            "bind": HOST,
            "port": str(self.port),
            "requirepass": self.password,
            "dir": f'"{self.place}"',
            "pidfile": f'"{self.place / "pid"}"',
            "daemonize": "no",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "maxmemory-policy": "noeviction",  # a broker that evicts loses messages
        }
