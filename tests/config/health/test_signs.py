"""All signs of trouble are read in one statement, and a sign that cannot be read hides no other."""

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from config.health import signs as reading
from config.health.alarms import update_alarms
from config.health.problems import problems
from config.health.signs import signs
from config.health.situation import read_situation
from runs.db.patience import statements_take
from runs.db.sql import execute
from runs.models import Alarm, OutboxMessage, Worker
from tests.support.hooks import make_source
from triggers.models import PoisonMessage, Reading
from triggers.sources.signs.poison import POISON

ROOT = Path(__file__).resolve().parents[3]
# What a worker loads before it takes a run.
WORKER = """
import sys
import django
django.setup()
from config.celery import app
app.loader.import_default_modules()
app.autodiscover_tasks(force=True)
import runs.worker.parent, runs.executor
print(*(name for name in sys.modules if name == "runs.sign" or "signs" in name.split(".")))
"""
TABLE = "triggers_poisonmessage"


@pytest.fixture
def trouble() -> None:
    """Messages of one source that could not become events, and a source that cannot be read."""
    for kind in ("dispatcher", "worker", "beat", "sources"):
        Worker.objects.create(kind=kind, host="here", pid=1, version="1", started_at="2026-01-01T00:00Z")
    orders, invoices = make_source("orders"), make_source("invoices")
    PoisonMessage.objects.create(source=orders, message_id="1", reason="no envelope", body=b"", size=0)
    Reading.objects.create(source=invoices, failing_since="2026-01-01T00:00Z", error="Connection refused")


@pytest.fixture
def forbidden() -> Iterator[None]:
    """The table of poison messages cannot be read."""
    execute(f"ALTER TABLE {TABLE} RENAME TO elsewhere")
    yield
    execute(f"ALTER TABLE elsewhere RENAME TO {TABLE}")


def found() -> dict[str, str]:
    return {problem.name: problem.text for problem in problems(read_situation())}


@pytest.mark.django_db(transaction=True)
def test_all_signs_are_read_in_one_statement(trouble: None, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        assert set(found()) == {"poison:orders", "source:invoices"}


@pytest.mark.django_db(transaction=True)
def test_a_sign_that_cannot_be_read_is_a_problem_and_hides_no_other(trouble: None, forbidden: None) -> None:
    names = found()

    assert set(names) == {"unknown-sign:poison", "source:invoices"}
    assert f'relation "{TABLE}" does not exist' in names["unknown-sign:poison"]


@pytest.mark.django_db(transaction=True)
def test_whichever_sign_cannot_be_read_the_others_are_found(monkeypatch: pytest.MonkeyPatch, trouble: None) -> None:
    OutboxMessage.objects.create(
        topic="alarm", payload={}, last_error="ConnectionError", available_at="2026-01-01T00:00Z"
    )
    whole = set(found())
    assert {"poison:orders", "source:invoices", "deliveries"} <= whole

    for sign in signs():
        with monkeypatch.context() as patched:
            patched.setattr(sign, "sql", "SELECT 1 / 0 AS nothing")
            names = set(found())

        assert f"unknown-sign:{sign.name}" in names
        assert {name for name in whole - names if name.partition(":")[0] not in sign.kinds} == set()


@pytest.mark.django_db(transaction=True)
def test_a_sign_that_takes_too_long_is_left_alone_for_a_while(
    trouble: None, monkeypatch: pytest.MonkeyPatch, django_assert_num_queries: Any
) -> None:
    monkeypatch.setattr(reading, "ALONE", timedelta(milliseconds=200))
    monkeypatch.setattr(reading, "slow", {})
    monkeypatch.setattr(POISON, "sql", "SELECT pg_sleep(60), '' AS slug")
    with statements_take(timedelta(seconds=1)):
        assert set(found()) == {"unknown-sign:poison", "source:invoices"}
    with django_assert_num_queries(1):
        assert set(found()) == {"unknown-sign:poison", "source:invoices"}

    monkeypatch.undo()
    monkeypatch.setattr(reading, "slow", {POISON: (0.0, "too long")})
    assert set(found()) == {"poison:orders", "source:invoices"}
    assert not reading.slow


def test_signs_that_are_read_one_by_one_take_a_bounded_time_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "TOGETHER", -1.0)

    rows, errors = reading._one_by_one(signs())

    assert (rows, set(errors)) == ({}, set(signs()))
    assert set(errors.values()) == {"not read: those before it took -1 s"}


@pytest.mark.django_db(transaction=True)
def test_while_a_slow_sign_is_read_again_no_other_thread_reads_it_with_the_quick_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reading, "slow", {POISON: (0.0, "too long")})
    read_joined, left_alone = reading._joined, []

    def joined(wanted: Any) -> Any:
        if list(wanted) == [POISON]:
            left_alone.append(POISON in reading.slow)
        return read_joined(wanted)

    monkeypatch.setattr(reading, "_joined", joined)
    read_situation()

    assert left_alone == [True]
    assert not reading.slow


@pytest.mark.django_db(transaction=True)
def test_the_alarms_of_a_sign_that_cannot_be_read_do_not_end(trouble: None) -> None:
    update_alarms()
    assert set(raised()) == {"poison:orders", "source:invoices"}

    execute(f"ALTER TABLE {TABLE} RENAME TO elsewhere")
    Reading.objects.all().delete()
    try:
        update_alarms()
        assert set(raised()) == {"poison:orders", "unknown-sign:poison"}
    finally:
        execute(f"ALTER TABLE elsewhere RENAME TO {TABLE}")

    PoisonMessage.objects.all().delete()
    update_alarms()
    assert raised() == []


def raised() -> list[str]:
    return list(Alarm.objects.filter(ended_at=None).values_list("name", flat=True))


@pytest.mark.django_db(transaction=True)
def test_a_row_that_a_sign_does_not_expect_hides_no_other_sign(trouble: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(**_: Any) -> Any:
        raise TypeError("an unexpected column")

    monkeypatch.setattr(POISON, "row", fails)

    assert set(found()) == {"unknown-sign:poison", "source:invoices"}


@pytest.mark.django_db(transaction=True)
def test_an_error_of_a_sign_inside_a_transaction_is_raised(forbidden: None) -> None:
    with pytest.raises(DatabaseError), transaction.atomic():
        read_situation()


@pytest.mark.django_db(transaction=True)
def test_a_lost_connection_is_no_sign_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    execute("SELECT 1")
    connection.connection.close()

    with pytest.raises(DatabaseError):
        read_situation()
    connection.close()


def test_signs_have_names_of_their_own_and_share_parameters_of_one_value() -> None:
    values: dict[str, Any] = {}
    for sign in signs():
        for name, value in sign.parameters().items():
            assert values.setdefault(name, value) == value, f"{sign.name}: {name}"
    names = Counter(sign.name for sign in signs())

    assert set(names.values()) == {1}
    assert not [sign.name for sign in signs() if sign.more and sign.more.name not in sign.kinds]


def test_a_worker_loads_no_sign() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WORKER], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr
