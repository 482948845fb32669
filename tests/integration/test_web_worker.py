"""The web process as `manage.py up` and the shipped units start it: a killed granian worker costs no refused connection."""

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from config.management.commands.up import _programs
from runs.actions.requeue import requeue
from runs.states import RunStatus
from tests.support.runs import make_run
from tests.support.stack import (
    PATIENCE,
    ROOT,
    Stack,
    StackMaker,
    eventually,
    free_port,
)
from triggers.api.tokens import create_token

pytestmark = pytest.mark.long


@contextmanager
def web(stack: Stack, log: Path) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    [program] = [program for program in _programs() if program.name == "web"]
    command, port = list(program.command), free_port()
    command[command.index("--port") + 1] = str(port)
    with (
        log.open("wb") as output,
        subprocess.Popen(command, env=stack.env, cwd=ROOT, stdout=output, stderr=output) as process,
    ):
        try:
            yield process, port
        finally:
            process.terminate()


def is_open(port: int) -> bool:
    with socket.socket() as caller:
        return caller.connect_ex(("127.0.0.1", port)) == 0


def answers(port: int) -> bool:
    with socket.socket() as caller:
        caller.settimeout(20)
        if caller.connect_ex(("127.0.0.1", port)):
            return False
        caller.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return caller.recv(64).startswith(b"HTTP/1.1 200")


def listeners(process: subprocess.Popen[bytes], port: int) -> list[int]:
    """The granian workers that accept connections."""
    found = []
    for child in psutil.Process(process.pid).children():
        with suppress(psutil.Error):  # it has just ended
            if any(one.laddr.port == port and one.status == "LISTEN" for one in child.net_connections()):
                found.append(child.pid)
    return found


@pytest.mark.chaos
def test_a_killed_web_worker_is_replaced_and_the_port_stays_open(stack: Stack, tmp_path: Path) -> None:
    log = tmp_path / "web.log"
    with web(stack, log) as (process, port):
        eventually(lambda: len(listeners(process, port)) == 2)
        killed, _ = listeners(process, port)

        os.kill(killed, signal.SIGKILL)

        def is_replaced() -> bool:
            assert process.poll() is None, log.read_text()
            assert is_open(port)
            return len(listeners(process, port)) == 2

        eventually(lambda: killed not in listeners(process, port))
        eventually(is_replaced, every=0.01)
        assert answers(port)
        assert process.poll() is None


@pytest.mark.chaos
def test_a_web_process_that_is_stopped_in_order_shows_it(stack: Stack, tmp_path: Path) -> None:
    def rows() -> list[str | None]:
        found = stack.query("SELECT stopped_at, stopped_reason FROM runs_worker WHERE kind = 'web'")
        return [row["stopped_reason"] if row["stopped_at"] else None for row in found]

    with web(stack, tmp_path / "web.log") as (process, port):
        eventually(lambda: len(listeners(process, port)) == 2 and rows() == [None, None])

        process.terminate()
        process.wait(PATIENCE)

    assert rows() == ["stopped", "stopped"]


@pytest.mark.chaos
def test_a_web_process_records_that_the_only_dispatcher_is_frozen(make_stack: StackMaker) -> None:
    stack = make_stack(env={"WAKEFUL_SAFETY_LOOK": "2s", "WAKEFUL_ALARM_AFTER": "7s"})

    def is_alarm() -> bool:
        found = stack.query("SELECT ended_at FROM runs_alarm WHERE name = 'no-dispatcher' ORDER BY id DESC LIMIT 1")
        return any(row["ended_at"] is None for row in found)

    dispatcher = stack.start("dispatcher")
    stack.start("web")
    eventually(lambda: not is_alarm())

    dispatcher.freeze()
    eventually(is_alarm)

    dispatcher.thaw()
    eventually(lambda: not is_alarm())


@pytest.mark.chaos
def test_a_web_process_that_freezes_in_a_transaction_holds_no_key_for_long(stack: Stack) -> None:
    with stack.orm():
        run = make_run(status=RunStatus.CANCELLED, key="customer")
        _, token = create_token("test", ["runs.requeue_run"], by="test")
    process = stack.start("web", env={"WAKEFUL_FAILPOINTS": "before_requeue_commit=stop"})
    path, headers = f"/api/v1/runs/{run.id}/requeue/", {"Authorization": f"Bearer {token}"}
    with ThreadPoolExecutor(1) as caller:
        answer = caller.submit(stack.request, "POST", path, headers=headers)
        eventually(lambda: any(child.status() == psutil.STATUS_STOPPED for child in process.children()))

        with stack.orm():
            requeue(run.id, by="test")  # waits for the lock of its key
        process.kill()

    assert answer.exception()
    assert stack.query("SELECT status, status_reason FROM runs_run") == [
        {"status": "queued", "status_reason": "requeued by test"}
    ]
