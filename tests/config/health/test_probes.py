from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, ProgrammingError
from django.test import Client

from config.health import probes
from runs.models import Worker
from runs.sign import BAD, Problem
from triggers.api.tokens import create_token

pytestmark = pytest.mark.django_db


def test_a_live_process_answers_without_a_database(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "pending_migrations", unreachable)

    assert client.get("/health/live").status_code == 200


@pytest.mark.parametrize("path", ["/health/live", "/health/ready"])
def test_a_probe_need_not_know_the_name_of_the_site(client: Client, settings: Any, path: str) -> None:
    settings.ALLOWED_HOSTS, settings.SECURE_SSL_REDIRECT = ["wakeful.example.org"], True

    assert client.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 200
    assert client.post(path, headers={"Host": "10.1.2.3:8000"}).status_code == 405
    assert client.get("/", headers={"Host": "10.1.2.3:8000"}).status_code == 400


def test_a_whole_installation_is_ready_and_names_its_processes(client: Client) -> None:
    for kind in ("beat", "dispatcher", "worker"):
        Worker.objects.create(kind=kind, host="here", pid=1, version="1")
    Worker.objects.create(kind="web", host="here", pid=2, version="1", stopped_at="2026-01-01T00:00Z")

    answer = client.get("/health/ready")

    assert answer.status_code == 200
    assert answer.json() == {
        "status": "ok",
        "database": "ok",
        "migrations": "ok",
        "broker": "ok",
        "processes": {"beat": 1, "dispatcher": 1, "worker": 1},
        "problems": {},
    }


def test_problems_are_named_but_events_are_still_accepted(client: Client) -> None:
    Worker.objects.create(kind="beat", host="here", pid=1, version="1")

    answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert list(answer.json()["problems"]) == ["no-dispatcher", "no-worker"]


def test_readiness_shows_strangers_the_kinds_of_problems_and_tokens_the_full_texts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = Problem(
        name="trigger-paused:invoices",
        severity=BAD,
        text="ValueError: unknown url type: 'hooks.example.org/SECRET'",
        remedy="",
        lasted=timedelta(),
        alarm_after=timedelta(),
    )
    monkeypatch.setattr(probes, "problems", lambda situation: [problem])
    tokens = {
        permission: create_token(name, [permission], by="test")[1]
        for name, permission in (("watcher", "runs.view_worker"), ("sender", "triggers.add_event"))
    }

    def reported(**headers: str) -> dict[str, str]:
        answer = client.get("/health/ready", headers=headers)
        assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
        problems: dict[str, str] = answer.json()["problems"]
        return problems

    for token in (None, tokens["triggers.add_event"], "wkf_unknown"):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        assert reported(**headers) == {"trigger-paused": "bad"}
    assert reported(Authorization=f"Bearer {tokens['runs.view_worker']}") == {problem.name: problem.text}


def test_a_lost_broker_is_degraded_but_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "broker_answers", lambda: False)

    answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")


def test_pending_migrations_are_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runs.db.schema_check.needed_migrations", lambda: [("runs", "9999_from_the_future")])

    answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["migrations"]) == (503, "pending")


def test_a_lost_database_is_not_ready(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "pending_migrations", unreachable)
    monkeypatch.setattr(probes, "connection", Closed())

    answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["database"]) == (503, "unreachable")


def unreachable() -> list[str]:
    raise OperationalError("connection refused")


class Closed:
    """Stands for the broken connection; the real one belongs to the test's transaction."""

    def close(self) -> Any:
        return None


def test_a_database_that_answers_with_an_error_is_not_called_unreachable(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "pending_migrations", no_such_table)
    monkeypatch.setattr(probes, "connection", Closed())

    answer = client.get("/health/ready")

    assert (answer.status_code, answer.json()["database"]) == (503, "failing")


def no_such_table() -> list[str]:
    raise ProgrammingError('relation "auth_user" does not exist')
