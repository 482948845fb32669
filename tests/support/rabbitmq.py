"""A RabbitMQ of the tests' own, from the system's package, and queues on it.

It starts two processes and leaves none behind: the node, and the port mapper that Erlang would otherwise start as a daemon.
"""

import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import amqp
import pytest

from config.stack import children
from tests.support.brokers import Message, TestBroker, body_of
from tests.support.servers import surroundings
from tests.support.stack import eventually, free_port

# The one on the PATH insists on the account of the package.
PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
QUORUM = {"x-queue-type": "quorum"}
SINGLE_ACTIVE = {"x-single-active-consumer": True}


@dataclass(kw_only=True)
class RabbitServer:
    port: int
    tls_port: int
    node: subprocess.Popen[bytes] | None = None
    begin: Callable[[], None] = lambda: None
    connections: list[Any] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"amqp://guest@127.0.0.1:{self.port}"

    @property
    def tls_url(self) -> str:
        return f"amqps://guest@127.0.0.1:{self.tls_port}"

    def signal(self, sent: signal.Signals) -> None:
        assert self.node
        children.kill_group(self.node, sent)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        assert self.node
        self.node.wait()

    def disconnect(self) -> None:
        for connection in self.connections:
            connection.collect()

    def connection(self) -> Any:
        """Closed with the server."""
        connection = amqp.Connection(f"127.0.0.1:{self.port}", connect_timeout=5)
        self.connections.append(connection)
        connection.connect()
        return connection


def find_rabbitmq() -> str:
    """Skip the test if there is no RabbitMQ."""
    found = str(PROGRAM) if PROGRAM.exists() else shutil.which("rabbitmq-server")
    if not found or not shutil.which("epmd"):
        pytest.skip("needs rabbitmq-server (Debian: apt-get install rabbitmq-server)")
    return found


@contextmanager
def rabbitmq(folder: Path, certificate: Path | None = None) -> Iterator[RabbitServer]:
    """A node that runs; with a certificate (its key in the same file), it speaks TLS as well."""
    program = find_rabbitmq()
    server, mapper, internal = RabbitServer(port=free_port(), tls_port=free_port()), free_port(), free_port()
    lines = [f"listeners.tcp.default = 127.0.0.1:{server.port}", "log.console = true", "log.file = false"]
    if certificate:
        lines += [f"listeners.ssl.default = 127.0.0.1:{server.tls_port}"]
        lines += [f"ssl_options.{name} = {certificate}" for name in ("certfile", "keyfile")]
    (folder / "rabbitmq.conf").write_text("\n".join(lines))
    env = {
        **surroundings(),
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"wakeful-{internal}@localhost",
        "RABBITMQ_DIST_PORT": str(internal),
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_GENERATED_CONFIG_DIR": str(folder / "generated"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
    }
    with ExitStack() as stack, (folder / "rabbitmq.log").open("ab") as log:

        def begin(command: Sequence[str]) -> None:
            server.node = children.spawn(command, env=env, output=log)
            stack.callback(server.node.wait)
            stack.callback(children.kill_group, server.node)
            if command == [program]:
                eventually(lambda: _answers(server))

        begin(["epmd", "-port", str(mapper)])
        server.begin = partial(begin, [program])
        server.begin()
        stack.callback(server.disconnect)
        yield server


def _answers(server: RabbitServer) -> bool:
    try:
        server.connection()
    except (OSError, amqp.AMQPError):
        return False
    return True


class AmqpQueue(TestBroker):
    """A durable queue. Its messages have ids and say their key in a header."""

    kind = "amqp"
    secret = "guest"

    def __init__(self, server: RabbitServer, arguments: dict[str, Any] | None = None) -> None:
        self.server, self.queue = server, f"orders-{uuid4()}"
        self.connection = server.connection()
        self.channel = self.connection.channel()
        self.channel.queue_declare(self.queue, durable=True, auto_delete=False, arguments=arguments or {})

    @property
    def settings(self) -> dict[str, Any]:
        return {"url": self.server.url, "queue": self.queue, "subject_header": "key"}

    def send(self, messages: Sequence[Message]) -> None:
        for key, number in messages:
            self.put(body_of((key, number)), message_id=f"{key}-{number}", application_headers={"key": key})

    def put(self, body: str | bytes, **properties: Any) -> None:
        message = amqp.Message(body, delivery_mode=2, **properties)
        self.channel.basic_publish(message, routing_key=self.queue)

    def unconfirmed(self) -> int:
        """Only those that no consumer holds: the broker reports no others here."""
        return int(self.channel.queue_declare(self.queue, passive=True).message_count)
