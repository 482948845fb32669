"""The ways in through the real web process: what only a server, threads and a PostgreSQL that dies can show."""

import http.client
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from tests.support.hooks import make_source, signed
from tests.support.stack import Stack, StackMaker, eventually
from triggers.tokens import create_token


@pytest.fixture
def web(stack: Stack) -> Stack:
    with stack.orm():
        make_source()
    stack.start("web")
    return stack


def test_of_many_deliveries_at_once_one_is_recorded(web: Stack) -> None:
    def deliver(_: int) -> tuple[int, str]:
        answer = web.request("POST", "/hooks/shop/", body=b"{}", headers=signed(b"{}"))
        return answer.status, answer.json()["event"]

    with ThreadPoolExecutor(8) as senders:
        answers = list(senders.map(deliver, range(24)))

    assert sorted(status for status, _ in answers) == [200] * 23 + [202]
    assert len({event for _, event in answers}) == 1
    assert web.query("SELECT count(*) FROM triggers_event") == [{"count": 1}]
    assert web.query("SELECT sum(count)::int AS again, bool_or(differs) AS differs FROM triggers_redelivery") == [
        {"again": 23, "differs": False}
    ]


def test_a_chunked_body_is_411_and_its_connection_stays_usable(web: Stack) -> None:
    with closing(http.client.HTTPConnection("127.0.0.1", web.port, timeout=10)) as connection:
        connection.request("POST", "/hooks/shop/", body=iter([b"{}"]), headers=signed(b"{}"), encode_chunked=True)
        refused = connection.getresponse()
        refused.read()
        connection.request("POST", "/hooks/shop/", body=b"{}", headers=signed(b"{}"))
        accepted = connection.getresponse()
        accepted.read()

    assert (refused.status, accepted.status) == (411, 202)


def test_a_cloudevent_is_recorded_over_the_wire(web: Stack) -> None:
    with web.orm():
        token = create_token("sensor", ["triggers.add_event"], by="test")[1]
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/cloudevents-batch+json"}
    event = {"specversion": "1.0", "id": "1", "source": "/tides", "type": "tide.turned", "data": "Süd"}

    answer = web.request("POST", "/api/v1/events/", body=json.dumps([event, event]).encode(), headers=headers)

    assert (answer.status, [one["duplicate"] for one in answer.json()]) == (202, [False, True])


def test_without_postgresql_it_is_503_and_with_it_202_again(make_stack: StackMaker) -> None:
    stack = make_stack(own_servers=True)
    with stack.orm():
        make_source()
    stack.start("web")

    def status() -> int:
        answer = stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed(b"{}"))
        assert (answer.status == 503) == ("retry-after" in answer.headers)
        return answer.status

    assert status() == 202
    postgres = stack.servers.postgres
    assert postgres
    postgres.kill()
    assert status() == 503
    postgres.start()
    assert eventually(lambda: status() == 200)
