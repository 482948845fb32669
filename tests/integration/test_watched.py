"""What a monitor outside notices of an installation whose processes really die: the ping stops, the alarm comes."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from tests.support.answering import answering
from tests.support.stack import Process, Stack, StackMaker, eventually

pytestmark = pytest.mark.long

LOOK = 1.0  # seconds; a process is missed after three of these, a worker after its lease
PATIENCE = 60.0


class Monitor:
    """An outside monitor: when it was pinged last, and the alarms it was sent."""

    def __init__(self) -> None:
        self.pinged_at = float("-inf")
        self.alarms: list[tuple[str, str]] = []
        monitor = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                monitor.pinged_at = time.monotonic()
                self._answer()

            def do_POST(self) -> None:
                sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                monitor.alarms.append((sent["alarm"], sent["state"]))
                self._answer()

            def _answer(self) -> None:
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: Any) -> None: ...

        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/"

    def hears(self) -> None:
        """Wait for a ping from now on."""
        now = time.monotonic()
        eventually(lambda: self.pinged_at > now, PATIENCE)

    def hears_no_more(self) -> None:
        """Wait until there has been none for five times as long as there is between two."""
        eventually(lambda: time.monotonic() - self.pinged_at > 5 * LOOK, PATIENCE)


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    monitor = Monitor()
    with answering(monitor.server):
        yield monitor


@pytest.fixture
def watched(make_stack: StackMaker, monitor: Monitor) -> Stack:
    look = f"{LOOK}s"
    env = {"WAKEFUL_SAFETY_LOOK": look, "WAKEFUL_HEARTBEAT_EVERY": look, "WAKEFUL_ALARM_AFTER": look}
    env |= {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "1s"}
    return make_stack(env={**env, "WAKEFUL_HEARTBEAT_URL": monitor.url, "WAKEFUL_ALARM_URL": monitor.url})


@pytest.mark.chaos
def test_the_ping_stops_and_the_alarm_comes_whichever_process_dies(watched: Stack, monitor: Monitor) -> None:
    worker, beat, dispatcher = (watched.start(kind) for kind in ("worker", "beat", "dispatcher"))
    monitor.hears()

    falls_silent_without(beat, monitor)
    eventually(lambda: ("no-beat", "ended") in monitor.alarms, PATIENCE)
    assert monitor.alarms == [("no-beat", "began"), ("no-beat", "ended")]

    # Without a worker the alarm is not sent: it waits for the next one. The missing ping is the sign.
    falls_silent_without(worker, monitor)
    eventually(lambda: ("no-worker", "ended") in monitor.alarms, PATIENCE)
    assert ("no-worker", "began") in monitor.alarms

    falls_silent_without(dispatcher, monitor)


def falls_silent_without(process: Process, monitor: Monitor) -> None:
    process.kill()
    monitor.hears_no_more()
    process.restart()
    monitor.hears()
