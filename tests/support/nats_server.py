"""A NATS server of the tests' own, from the system's package, and streams on it."""

import asyncio
import shutil
import signal
import subprocess
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import nats
import pytest
from nats.js.api import RetentionPolicy, StreamConfig

from config.stack import children
from tests.support.brokers import Message, TestBroker, body_of
from tests.support.servers import surroundings
from tests.support.stack import eventually, free_port

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class NatsServer:
    url: str
    port: int
    process: subprocess.Popen[bytes]

    def signal(self, sent: signal.Signals) -> None:
        children.kill_group(self.process, sent)


@contextmanager
def nats_server(folder: Path, certificate: Path | None = None, *, port: int = 0) -> Iterator[NatsServer]:
    """With JetStream, and a user `reader` whose password is `secret`; with a certificate (its key in the same file), over TLS."""
    program, port = shutil.which("nats-server"), port or free_port()
    (folder / "nats.log").unlink(missing_ok=True)  # of a server that had this folder before
    if not program:
        pytest.skip("needs nats-server (Debian: apt-get install nats-server)")
    command = [program, "-js", "-sd", str(folder / "jetstream"), "-a", "127.0.0.1", "-p", str(port)]
    command += ["--user", "reader", "--pass", "secret"]
    command += ["--tls", "--tlscert", str(certificate), "--tlskey", str(certificate)] if certificate else []
    with (folder / "nats.log").open("ab") as log:
        process = children.spawn(command, env=surroundings(), output=log)
    try:
        eventually(lambda: "Server is ready" in (folder / "nats.log").read_text())
        yield NatsServer(url=f"{'tls' if certificate else 'nats'}://127.0.0.1:{port}", port=port, process=process)
    finally:
        children.kill_group(process)
        process.wait()


class NatsStream(TestBroker):
    """Keeps its last `most` messages."""

    kind = "nats"
    secret = "secret"

    def __init__(
        self, server: NatsServer, *, retention: RetentionPolicy = RetentionPolicy.LIMITS, most: int = -1
    ) -> None:
        self.server, self.name = server, f"orders-{uuid4()}"
        self.config = StreamConfig(
            name=self.name, subjects=[f"{self.name}.>"], retention=retention, max_msgs=most, duplicate_window=0.2
        )
        self.make()

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "servers": self.server.url,
            "stream": self.name,
            "start": "beginning",
            "username": "reader",
            "subject_path": "key",
        }

    def make(self) -> None:
        self.do(lambda stream: stream.add_stream(self.config))

    def delete(self) -> None:
        self.do(lambda stream: stream.delete_stream(self.name))

    def send(self, messages: Sequence[Message]) -> None:
        async def publish(stream: Any) -> None:
            for start in range(0, len(messages), 500):
                part = messages[start : start + 500]
                sent = [
                    await stream.publish_async(f"{self.name}.{message[0]}", body_of(message).encode())
                    for message in part
                ]
                await asyncio.gather(*sent)

        self.do(publish)

    def put(self, body: bytes, *, key: str = "ada", headers: dict[str, str] | None = None) -> None:
        self.do(lambda stream: stream.publish(f"{self.name}.{key}", body, headers=headers))

    def unconfirmed(self) -> int:
        """None: the place is Wakeful's."""
        return 0

    def do(self, work: Any) -> Any:
        async def connected() -> Any:
            connection = await nats.connect(self.server.url, user="reader", password=self.secret)
            try:
                return await _awaited(work(connection.jetstream()))
            finally:
                await connection.close()

        return asyncio.run(connected())


async def _awaited(work: Coroutine[Any, Any, T]) -> T:
    return await work
