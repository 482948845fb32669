from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client.parser import text_string_to_metric_families

from runs.db.signs.oldest_transaction import OLDEST_TRANSACTION
from runs.db.sql import execute
from runs.models import Worker
from runs.queues.pause import pause
from runs.states import RunStatus
from tests.support.rows_read import MANY_LIKE_IT, runs_read
from tests.support.runs import make_run
from tests.support.triggers import make_event, make_paused_trigger

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def scrape() -> dict[tuple[str, ...], float]:
    answer = Client().get("/metrics")
    assert answer.status_code == 200
    families = text_string_to_metric_families(answer.content.decode())
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels, reverse=True))): sample.value
        for family in families
        for sample in family.samples
    }


def test_an_empty_installation_has_nothing_waiting() -> None:
    metrics = scrape()

    assert metrics["wakeful_events_undispatched",] == 0
    assert metrics["wakeful_events_undispatched_age_seconds",] == 0
    assert metrics["wakeful_runs", "failed", ""] == 0
    assert metrics["wakeful_schedule_late_seconds",] == 0


def test_waiting_work_is_counted() -> None:
    make_event()
    make_event()
    make_paused_trigger()
    make_run()
    make_run(ready_at=None, due_at=timezone.now())
    make_run(ready_at=None, key="k:1")
    make_run(status=RunStatus.WAITING)
    make_run(status=RunStatus.UNCERTAIN)
    make_run(status=RunStatus.FAILED)
    make_run(status=RunStatus.SUCCEEDED)

    metrics = scrape()

    assert metrics["wakeful_events_undispatched",] == 2
    assert metrics["wakeful_events_undispatched_age_seconds",] > 0
    assert metrics["wakeful_triggers_paused",] == 1
    runs = {labels[1:]: value for labels, value in metrics.items() if labels[0] == "wakeful_runs"}
    assert runs == {
        ("queued", "ready"): 1,
        ("queued", "due"): 1,
        ("queued", "blocked"): 1,
        ("running", ""): 0,
        ("waiting", ""): 1,
        ("uncertain", ""): 1,
        ("failed", ""): 1,
    }


@pytest.mark.parametrize(
    "many",
    [
        {},
        {"ready_at": None, "due_at": NOW},
        {"status": RunStatus.WAITING},
        {"status": RunStatus.FAILED},
        {"status": RunStatus.SUCCEEDED},
    ],
    ids=["ready", "due", "waiting", "failed", "succeeded"],
)
def test_a_scrape_reads_no_more_of_many_runs_than_it_counts(
    many: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("config.health.metrics.MOST", 20)
    monkeypatch.setattr("runs.queues.state.SAMPLE", 20)
    execute(MANY_LIKE_IT, [make_run(**many).pk])
    execute("ANALYZE runs_run")
    scrape()  # counting begins

    assert runs_read(scrape) < 200


def test_a_process_kind_shows_when_it_was_last_seen() -> None:
    long_ago = timezone.now() - timedelta(hours=1)
    Worker.objects.create(kind="beat", host="a", pid=1, version="1", seen_at=long_ago, stopped_at=long_ago)
    Worker.objects.create(kind="worker", host="a", pid=2, version="1")

    metrics = scrape()

    assert (metrics["wakeful_processes", "beat"], metrics["wakeful_processes", "worker"]) == (0, 1)
    assert metrics["wakeful_process_seen_seconds", "beat"] > 3599
    assert metrics["wakeful_process_seen_seconds", "worker"] < 60


def test_each_problem_is_a_metric() -> None:
    pause("default", reason="the printer burns", by="test")

    metrics = scrape()

    assert metrics["wakeful_problem", "bad", "no-dispatcher"] == 1
    assert metrics["wakeful_problem", "warning", "paused:default"] == 1
    assert (metrics["wakeful_queue_paused", "default"], metrics["wakeful_queue_paused", "*"]) == (1, 0)
    assert metrics["wakeful_oldest_transaction_seconds",] == 0


@pytest.mark.django_db(transaction=True)
def test_an_age_that_cannot_be_read_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OLDEST_TRANSACTION, "sql", "SELECT 1 / 0 AS nothing")

    metrics = scrape()

    assert metrics["wakeful_problem", "bad", "unknown-sign:oldest_transaction"] == 1
    assert ("wakeful_oldest_transaction_seconds",) not in metrics


def test_a_scrape_costs_the_same_queries_however_much_there_is(django_assert_num_queries: Any) -> None:
    scrape()  # counting begins
    make_event()
    make_run()
    with CaptureQueriesContext(connection) as first:
        scrape()

    for _ in range(5):
        make_event()
        make_run()

    with django_assert_num_queries(len(first)):
        scrape()
