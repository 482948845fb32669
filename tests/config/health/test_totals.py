from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal

import psycopg
import pytest
from django.db import connection, transaction
from django.db.models import F
from django.utils import timezone

from config import retention
from config.health import totals
from config.models import Total
from runs.actions.cancel import cancel
from runs.db.sql import execute
from runs.models import Run, Worker
from runs.states import RunStatus
from tests.config.health.test_metrics import scrape
from tests.support.hooks import make_source
from tests.support.journals import make_step
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import RefusedDelivery

pytestmark = pytest.mark.django_db
FINISHED = "wakeful_runs_finished_total"


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time for clocks that are apart: there is one."""
    monkeypatch.setattr(totals, "SETTLED", timedelta())
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM runs_uncountedend")
    scrape()


def end(run: Run, status: str = RunStatus.SUCCEEDED, *, seconds: float = 2) -> None:
    """As an owner does, after the claim."""
    now, worker = timezone.now(), Worker.objects.create(kind="worker", host="a", pid=1, version="1")
    found = Run.objects.filter(id=run.id)
    found.update(
        status="running", ready_at=None, slot=None, worker=worker, pid=1, attempt=1, epoch=F("epoch") + 1, claimed_at=now,
        created_at=now - timedelta(seconds=seconds + 7), started_at=now - timedelta(seconds=seconds),
        deadline_at=now + timedelta(hours=1),
    )  # fmt: skip
    found.update(status=status, finished_at=now, deadline_at=None)


def test_ends_of_runs_are_counted_once_by_agent_and_status() -> None:
    end(make_run())
    end(make_run())
    end(make_run(), RunStatus.FAILED)
    cancel(make_run(trigger="other").id, by="test")

    for found in (scrape(), scrape()):
        assert found[FINISHED, "succeeded", "greeter"] == 2
        assert found[FINISHED, "failed", "greeter"] == 1
        assert found[FINISHED, "cancelled", "other"] == 1


def test_a_run_that_is_requeued_and_one_that_is_pruned_take_nothing_away() -> None:
    again, gone = make_run(), make_run()
    end(again, RunStatus.FAILED)
    end(gone, RunStatus.FAILED)
    before = scrape()[FINISHED, "failed", "greeter"]

    Run.objects.filter(id=again.id).update(status="queued", ready_at=timezone.now(), finished_at=None)
    gone.delete()
    assert scrape()[FINISHED, "failed", "greeter"] == before
    end(again)

    found = scrape()
    assert (found[FINISHED, "failed", "greeter"], found[FINISHED, "succeeded", "greeter"]) == (before, 1)


def test_an_end_that_is_rolled_back_is_none() -> None:
    with transaction.atomic():
        end(make_run())
        transaction.set_rollback(True)

    assert (FINISHED, "succeeded", "greeter") not in scrape()


def test_durations_and_start_delays_are_histograms() -> None:
    end(make_run(), seconds=0.3)
    end(make_run(), seconds=45)
    cancel(make_run().id, by="test")  # never started

    found = scrape()

    duration, delay = "wakeful_run_duration_seconds", "wakeful_run_start_delay_seconds"
    buckets = [found[f"{duration}_bucket", le, "greeter"] for le in ("0.1", "0.5", "30", "60", "+Inf")]
    assert (buckets, found[f"{duration}_count", "greeter"]) == ([0, 1, 1, 2, 2], 2)
    assert found[f"{duration}_sum", "greeter"] == pytest.approx(45.3, abs=0.01)
    assert (found[f"{delay}_bucket", "5", "greeter"], found[f"{delay}_bucket", "10", "greeter"]) == (0, 2)


def test_events_are_counted_by_source() -> None:
    make_event()
    make_event()

    assert scrape()["wakeful_events_accepted_total", "cli"] == 2
    make_event()
    assert scrape()["wakeful_events_accepted_total", "cli"] == 3


@pytest.fixture
def unprivileged() -> Iterator[None]:
    """The session has a role that does not see when transactions of others began."""
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE wakeful_test_lesser")
        cursor.execute("GRANT ALL ON ALL TABLES IN SCHEMA public TO wakeful_test_lesser")
        cursor.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA public TO wakeful_test_lesser")
        cursor.execute("SET ROLE wakeful_test_lesser")
        yield
        cursor.execute("RESET ROLE")
        cursor.execute("DROP OWNED BY wakeful_test_lesser")
        cursor.execute("DROP ROLE wakeful_test_lesser")


@pytest.mark.django_db(transaction=True)
def test_an_event_of_an_open_transaction_of_another_role_is_counted_later(
    unprivileged: None,
) -> None:
    accepted = ("wakeful_events_accepted_total", "emit")
    with psycopg.connect(**connection.get_connection_params()) as other:
        other.execute("SELECT wakeful_emit('order.paid')")
        assert accepted not in scrape()

    assert scrape()[accepted] == 1


def test_more_than_a_portion_is_counted_by_later_scrapes_and_of_ended_runs_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(totals, "PORTION", 2)
    usage = {"model": "m", "input_tokens": 10, "output_tokens": 1, "cost": "0.5"}
    run = make_run()
    for number in range(5):
        make_event()
        end(make_run())
        make_step(run, str(number), kind="model", position=number, usage=usage, ended_at=timezone.now())

    found = [scrape() for _ in range(5)]

    accepted, requests = ("wakeful_events_accepted_total", "cli"), ("wakeful_llm_requests_total", "m", "greeter")
    assert [one[accepted] for one in found] == [2, 4, 5, 5, 5]
    assert [one[FINISHED, "succeeded", "greeter"] for one in found] == [5, 5, 5, 5, 5]
    assert found[-1][requests] == 5


def test_requests_tokens_and_spend_are_counted_by_agent_and_model() -> None:
    usage = {"model": "m", "input_tokens": 100, "output_tokens": 20, "cost": str(Decimal("0.25"))}
    run = make_run()
    make_step(run, "a", kind="model", usage=usage, ended_at=timezone.now())
    make_step(run, "b", kind="model", position=1, epoch=0, usage=usage, ended_at=timezone.now())  # copied by a fork

    for found in (scrape(), scrape()):
        assert found["wakeful_llm_requests_total", "m", "greeter"] == 1
        assert found["wakeful_llm_spent_usd_total", "m", "greeter"] == 0.25
        assert found["wakeful_llm_tokens_total", "m", "input", "greeter"] == 100
        assert found["wakeful_llm_tokens_total", "m", "output", "greeter"] == 20


def test_refused_deliveries_stay_counted_when_their_hour_is_over_and_when_their_rows_are_pruned() -> None:
    source = make_source("door")
    hour = timezone.now().replace(minute=0, second=0, microsecond=0)
    row = RefusedDelivery.objects.create(source=source, hour=hour, reason="no signature", status=401, count=3)
    refused = ("wakeful_refused_deliveries_total", "401", "door")
    assert scrape()[refused] == 3

    execute(totals.COUNTED, ["refused", (hour - timedelta(hours=3)).isoformat()])
    RefusedDelivery.objects.filter(pk=row.pk).update(hour=hour - timedelta(hours=2))
    assert scrape()[refused] == 3
    row.delete()
    assert scrape()[refused] == 3


def test_the_agents_of_a_counter_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(totals, "MOST", 2)
    for agent in ("a", "b", "c", "d"):
        end(make_run(trigger=agent))

    found = scrape()

    assert sum(1 for name, *_ in found if name == FINISHED) == 3
    assert found[FINISHED, "succeeded", totals.OTHERS] == 2


def test_a_total_that_does_not_rise_any_more_is_removed_after_a_long_time() -> None:
    end(make_run())
    scrape()
    Total.objects.update(changed_at=timezone.now() - timedelta(days=400))

    assert {one.name: one.rows for one in retention.prune()}["totals"] > 0


def test_without_a_scrape_for_an_hour_no_end_is_noted() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT setval('runs_ends_are_counted_until', extract(epoch FROM now())::bigint - 1)")
        end(make_run())
        cursor.execute("SELECT count(*) FROM runs_uncountedend")
        assert cursor.fetchall() == [(0,)]


def test_a_server_that_only_reads_returns_the_totals_as_they_stand() -> None:
    end(make_run())
    scrape()
    with connection.cursor() as cursor:
        cursor.execute("SET TRANSACTION READ ONLY")

    assert scrape()[FINISHED, "succeeded", "greeter"] == 1
