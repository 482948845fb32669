from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from runs.models import Worker
from runs.processes.dead_man import Heartbeat, others_alive
from tests.support.answering import answering
from tests.support.stack import eventually

pytestmark = pytest.mark.django_db


@pytest.fixture
def monitor() -> Iterator[tuple[str, list[str]]]:
    """An outside monitor: its URL, and the requested paths."""
    pings: list[str] = []

    class Monitor(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            pings.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    with answering(HTTPServer(("127.0.0.1", 0), Monitor)) as address:
        yield f"{address}/ping", pings


def alive(*kinds: str) -> None:
    for kind in kinds:
        Worker.objects.create(kind=kind, host="h", pid=1, version="1")


@pytest.mark.parametrize(
    ("kinds", "expected"), [(["beat", "worker"], True), (["beat"], False), (["worker"], False), ([], False)]
)
def test_beat_and_a_worker_must_both_be_alive(kinds: list[str], expected: bool) -> None:
    alive(*kinds)

    assert others_alive() is expected


def test_the_monitor_gets_one_ping_a_minute(monitor: tuple[str, list[str]], settings: Any) -> None:
    settings.WAKEFUL_HEARTBEAT_URL, pings = monitor
    alive("beat", "worker")
    heartbeat = Heartbeat()

    heartbeat.beat()
    heartbeat.beat()

    eventually(lambda: pings)
    assert pings == ["/ping"]


def test_the_monitor_gets_no_ping_without_a_worker(monitor: tuple[str, list[str]], settings: Any) -> None:
    settings.WAKEFUL_HEARTBEAT_URL, pings = monitor
    alive("beat")
    heartbeat = Heartbeat()

    heartbeat.beat()

    assert heartbeat.sent_at == float("-inf")
    assert not pings
