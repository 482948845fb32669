import socket
from collections.abc import Callable
from threading import Thread
from typing import Any
from urllib.request import urlopen

import pytest
from django.db import connection

from agents.exceptions import NetworkRefused
from agents.guards.network import network_refused

NOWHERE = ("127.0.0.1", 9)


def send_a_datagram() -> None:
    with socket.socket(type=socket.SOCK_DGRAM) as sock:
        sock.sendto(b"hello", NOWHERE)


@pytest.mark.parametrize(
    "reach_out",
    [
        lambda: socket.create_connection(NOWHERE, timeout=1),
        lambda: socket.getaddrinfo("example.org", 80),
        lambda: socket.gethostbyname("example.org"),
        lambda: urlopen("http://127.0.0.1:9/", timeout=1),
        send_a_datagram,
    ],
    ids=["connect", "getaddrinfo", "gethostbyname", "urlopen", "sendto"],
)
def test_an_atomic_agent_cannot_reach_the_outside_and_the_error_shows_what_to_do(reach_out: Callable[[], Any]) -> None:
    with network_refused("caller"), pytest.raises(NetworkRefused, match=r"'caller' is atomic.*durable=True"):
        reach_out()


def test_code_before_and_after_the_guarded_block_may_use_sockets() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with network_refused("caller"):
            pass
        socket.create_connection(server.getsockname(), timeout=5).close()


def test_other_threads_of_the_process_are_left_alone() -> None:
    reached = []

    def reach_out(address: Any) -> None:
        socket.create_connection(address, timeout=5).close()
        reached.append(address)

    with socket.create_server(("127.0.0.1", 0)) as server, network_refused("caller"):
        thread = Thread(target=reach_out, args=[server.getsockname()])
        thread.start()
        thread.join()

    assert reached


@pytest.mark.django_db(transaction=True)
def test_the_database_is_not_the_outside() -> None:
    connection.close()

    with network_refused("caller"), connection.cursor() as cursor:
        cursor.execute("SELECT 1")
