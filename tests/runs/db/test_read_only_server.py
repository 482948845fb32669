"""A server that only reads (a standby, a primary in maintenance) is a database that is away: it is waited for, and nothing
fails over it for good."""

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import psycopg
import pytest
from django.contrib.auth.models import Group
from django.db import OperationalError, connection, transaction
from django.test import Client

from agents import AgentRun
from runs.attempt import ownership
from runs.db.trip import one_trip
from runs.executor import execute
from runs.models import Run
from tests.support.durable import Lab
from tests.support.runs import make_run
from tests.support.stack import eventually
from tests.support.triggers import make_event
from triggers.models import Source
from triggers.sources.secrets import add_secret

pytestmark = pytest.mark.django_db(transaction=True)


class Server:
    """The server of this test process, made read-only and back by its administrator."""

    def __init__(self) -> None:
        wanted = connection.get_connection_params()
        for name in ("cursor_factory", "context", "prepare_threshold", "target_session_attrs"):
            wanted.pop(name, None)
        self.session = psycopg.connect(**wanted, autocommit=True)

    def reads_only(self) -> None:
        self._set("ALTER SYSTEM SET default_transaction_read_only = on", "on")

    def writes(self) -> None:
        self._set("ALTER SYSTEM RESET default_transaction_read_only", "off")

    def _set(self, statement: str, value: str) -> None:
        self.session.execute(statement)
        self.session.execute("SELECT pg_reload_conf()")
        show = "SHOW default_transaction_read_only"
        eventually(lambda: self.session.execute(show).fetchone() == (value,))


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    connection.close()  # one that has run a durable body has a setting of its own
    try:
        yield server
    finally:
        server.writes()
        server.session.close()
        connection.close()


def test_a_running_session_notices_and_ends(server: Server) -> None:
    connection.ensure_connection()
    server.reads_only()

    with pytest.raises(OperationalError, match="is read-only"):
        eventually(lambda: Group.objects.create(name="x").name and Group.objects.filter(name="x").delete() and False)

    assert connection.connection is None
    with pytest.raises(OperationalError, match="read-only"):
        connection.ensure_connection()
    server.writes()
    assert Group.objects.create(name="y").pk


def test_hooks_answer_503_on_a_read_only_server(server: Server, client: Client) -> None:
    Source.objects.create(slug="shop", kind="bearer")
    add_secret(Source.objects.get(slug="shop"), "a-token-of-the-shop", by="test")

    def deliver() -> Any:
        return client.post(
            "/hooks/shop/",
            b"{}",
            content_type="application/json",
            headers={"Authorization": "Bearer a-token-of-the-shop"},
        )

    assert deliver().status_code == 202
    server.reads_only()
    refused = eventually(lambda: (answer := deliver()).status_code != 202 and answer)

    for answer in (refused, deliver()):
        assert (answer.status_code, bool(answer.headers["Retry-After"])) == (503, True)
    server.writes()
    assert deliver().status_code == 202


def test_an_atomic_run_is_tried_again(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(monkeypatch)
    tries: list[int] = []

    def body(run: AgentRun) -> None:
        tries.append(1)
        if len(tries) == 1:
            server.reads_only()
            eventually(
                lambda: connection.connection.info.parameter_status("default_transaction_read_only") == "on" or ping()
            )
        Group.objects.create(name="written")

    def ping() -> bool:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
        return False

    lab.declare(body, durable=False)
    # The first pause of the executor is when the administrator is done.
    clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda seconds: server.writes())
    monkeypatch.setattr(ownership, "time", clock)
    make_run(event_id=make_event().id, trigger="durable", policy={"retries": 1, "backoff": 0})
    claim = lab.claim()
    assert claim is not None
    execute(claim)

    assert Run.objects.get(pk=claim.run_id).status == "queued"
    lab.later(Run.objects.get(pk=claim.run_id))
    assert Run.objects.get(pk=claim.run_id).status == "succeeded"


def test_a_durable_body_that_writes_still_fails_with_the_read_only_error(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Lab(monkeypatch).run(lambda run: Group.objects.create(name="x") and None, policy={"retries": 5})

    assert (run.status, run.status_reason) == ("failed", "permanent error")
    assert "a durable agent may only read here" in run.error


def test_statements_in_one_round_trip_find_it_away(server: Server) -> None:
    server.reads_only()

    with pytest.raises(OperationalError, match="read-only"), transaction.atomic(), one_trip() as trip:
        trip.add("DELETE FROM runs_queue")
    assert connection.connection is None
