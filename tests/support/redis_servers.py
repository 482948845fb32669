"""Redis or Valkey beside the one of the tests: behind Sentinel, and with TLS."""

import subprocess
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis

from config.stack import children
from config.stack.embedded.binaries import find_valkey
from tests.support.certificates import Authority
from tests.support.servers import surroundings
from tests.support.stack import eventually, free_port

MASTER = "mymaster"
PASSWORD = "of-the-master"


@dataclass(kw_only=True)
class Node:
    """A server or a sentinel. A sentinel writes what it learns into the file of its settings."""

    folder: Path
    settings: list[str]
    program: Path = field(default_factory=find_valkey)
    is_sentinel: bool = False
    port: int = field(default_factory=free_port)
    tls: Mapping[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> "Node":
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "server.conf"
        if not file.exists():
            place = [f"{'tls-port' if self.tls else 'port'} {self.port}", f"dir {self.folder}", "bind 127.0.0.1"]
            file.write_text("\n".join([*place, *self.settings, ""]))
        command: list[str | Path] = [self.program, file, *(["--sentinel"] if self.is_sentinel else [])]
        with (self.folder / "log").open("ab") as log:
            self.process = children.spawn(command, env=surroundings(), output=log)
        eventually(self.answers, timeout=30)
        return self

    def answers(self) -> bool:
        assert self.process
        if self.process.poll() is not None:
            pytest.skip(f"{self.program} does not start so: {(self.folder / 'log').read_text()[-300:]}")
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.RedisError:
            return False

    def client(self) -> "redis.Redis":
        password = None if self.is_sentinel else PASSWORD
        return redis.Redis("127.0.0.1", self.port, password=password, socket_timeout=2, **self.tls)

    def kill(self) -> None:
        if self.process:
            children.kill_group(self.process)
            self.process.wait()


@dataclass(kw_only=True)
class Sentinels:
    servers: list[Node]
    sentinels: list[Node]

    @property
    def url(self) -> str:
        return ";".join(f"sentinel://:{PASSWORD}@127.0.0.1:{one.port}/0" for one in self.sentinels)

    @property
    def master(self) -> Node:
        with self.sentinels[0].client() as client:
            known = client.sentinel_get_master_addr_by_name(MASTER)
        [found] = [server for server in self.servers if known and server.port == int(known[1])]
        return found

    def has_replica(self) -> bool:
        with self.sentinels[0].client() as client:
            return bool(client.sentinel_slaves(MASTER))


@contextmanager
def sentinels(folder: Path) -> Iterator[Sentinels]:
    """A master, a replica, and three sentinels that notice within a second that it is gone."""
    own = [f"requirepass {PASSWORD}", f"masterauth {PASSWORD}", 'save ""', "maxmemory-policy noeviction"]
    with ExitStack() as stack:

        def begun(name: str, settings: list[str], *, is_sentinel: bool = False) -> Node:
            node = Node(folder=folder / name, settings=settings, is_sentinel=is_sentinel)
            stack.callback(node.kill)
            return node.start()

        master = begun("one", own)
        replica = begun("two", [*own, f"replicaof 127.0.0.1 {master.port}"])
        watched = [
            f"sentinel monitor {MASTER} 127.0.0.1 {master.port} 2",
            f"sentinel auth-pass {MASTER} {PASSWORD}",
            f"sentinel down-after-milliseconds {MASTER} 1000",
            f"sentinel failover-timeout {MASTER} 5000",
        ]
        watching = [begun(f"sentinel-{number}", watched, is_sentinel=True) for number in range(3)]
        all_of_it = Sentinels(servers=[master, replica], sentinels=watching)
        eventually(all_of_it.has_replica)
        yield all_of_it


@contextmanager
def encrypted(folder: Path, authority: Authority) -> Iterator[Node]:
    """A server that takes no client without a certificate of the authority."""
    server, client = authority.sign("server", "127.0.0.1"), authority.sign("client")
    files = [f"tls-cert-file {server.certificate}", f"tls-key-file {server.key}", f"tls-ca-cert-file {authority.path}"]
    tls = {
        "ssl": True,
        "ssl_ca_certs": str(authority.path),
        "ssl_certfile": str(client.certificate),
        "ssl_keyfile": str(client.key),
    }
    settings = ["port 0", *files, f"requirepass {PASSWORD}", 'save ""', "maxmemory-policy noeviction"]
    node = Node(folder=folder / "encrypted", settings=settings, program=_with_tls(), tls=tls)
    try:
        yield node.start()
    finally:
        node.kill()


def _with_tls() -> Path:
    """Of the system: the server of the wheel is built without TLS."""
    for name in ("redis-server", "valkey-server"):
        if (program := Path("/usr/bin") / name).exists():
            return program
    pytest.skip("needs a Redis with TLS (Debian: apt-get install redis-server)")
