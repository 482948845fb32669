"""The ways in through the real web process: what only a server, threads and a PostgreSQL that dies can show."""

import http.client
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.support.hooks import make_source, signed_headers
from tests.support.stack import Stack, StackMaker


@pytest.fixture(scope="module")
def web(make_shared_stack: StackMaker) -> Stack:
    stack = make_shared_stack()
    with stack.orm():
        make_source()
    stack.start("web")
    return stack


def test_one_of_many_simultaneous_deliveries_is_recorded(web: Stack) -> None:
    def deliver(_: int) -> tuple[int, str]:
        answer = web.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}", id_="many"))
        return answer.status, answer.json()["event"]

    with ThreadPoolExecutor(8) as senders:
        answers = list(senders.map(deliver, range(24)))

    assert sorted(status for status, _ in answers) == [200] * 23 + [202]
    [recorded] = {event for _, event in answers}
    assert web.query("SELECT id::text FROM triggers_event WHERE ce_id = 'many'") == [{"id": recorded}]
    again = "SELECT sum(count)::int AS again, bool_or(differs) AS differs FROM triggers_redelivery WHERE event_id = %s"
    assert web.query(again, recorded) == [{"again": 23, "differs": False}]


def test_a_chunked_body_is_411_and_its_connection_stays_usable(web: Stack) -> None:
    headers = signed_headers(b"{}", id_="chunked")
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=10)) as connection:
        # In one piece: a server may close the connection if the body arrives after its answer.
        connection.connect()
        head = {**headers, "Host": "127.0.0.1", "Transfer-Encoding": "chunked"}
        lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
        connection.sock.sendall(f"POST /hooks/shop/ HTTP/1.1\r\n{lines}\r\n2\r\n{{}}\r\n0\r\n\r\n".encode())
        refused = http.client.HTTPResponse(connection.sock, method="POST")
        refused.begin()
        refused.read()
        connection.request("POST", "/hooks/shop/", body=b"{}", headers=headers)
        accepted = connection.getresponse()
        accepted.read()

    assert (refused.status, accepted.status) == (411, 202)
