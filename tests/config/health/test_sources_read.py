"""Sources that Wakeful reads, on the pages and in the metrics of an operator."""

from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.sql import execute
from runs.sign import COUNTED
from tests.support.console import make_worker, page_of
from triggers.models import PoisonMessage, Reading, Source, SourceGap

pytestmark = pytest.mark.django_db
SETTINGS = {"url": "redis://localhost/0", "stream": "orders"}


@pytest.fixture
def source() -> Source:
    return Source.objects.create(slug="orders", kind="redis_streams", settings=SETTINGS)


def make_reading(source: Source, **fields: Any) -> Reading:
    return Reading.objects.create(source=source, owner=make_worker("sources"), **fields)


def make_poison(source: Source, **fields: Any) -> PoisonMessage:
    named = {"origin": "/sources/orders/", "message_id": "7-0", "reason": "no field", "body": b"{", "size": 1}
    return PoisonMessage.objects.create(source=source, **{**named, **fields})


def make_gap(source: Source, number: int = 1, **fields: Any) -> SourceGap:
    named = {"stream": "orders", "reason": "trimmed", "start": "2", "end": "4", "count": 3, "detail": ""}
    return SourceGap.objects.create(source=source, gap_id=f"gap/{number}", **{**named, **fields})


def names() -> set[str]:
    return {problem.name for problem in problems(read_situation())}


def test_a_source_without_a_reader_is_a_problem_until_a_process_is_alive(source: Source) -> None:
    assert "no-sources" in names()

    make_worker("sources")

    assert "no-sources" not in names()


def test_a_source_that_cannot_be_read_and_its_poison_are_problems(source: Source) -> None:
    make_reading(
        source, failing_since=timezone.now() - timedelta(minutes=2), failures=3, error="refused", remedy="Start it."
    )
    make_poison(source)
    make_poison(source, message_id="6-0", last_at=timezone.now() - timedelta(days=2))

    found = {problem.name: problem for problem in problems(read_situation())}

    assert found["source:orders"].remedy == "Start it."
    assert found["source:orders"].is_alarm
    assert found["poison:orders"].text.startswith("1 message of source orders")


def test_the_page_of_a_source_shows_who_reads_it_and_what_could_not_become_an_event(
    admin_client: Client, source: Source
) -> None:
    reading = make_reading(source, read_count=1234, lag=56, position="7-0")
    make_poison(source, reason="it has no field 'body'")

    page = admin_client.get(page_of("triggers_source", source)).content.decode()

    for shown in ("It is read", "here:1", "1,234", "56", "7-0", "it has no field"):
        assert shown in page
    Reading.objects.filter(pk=reading.pk).update(failing_since=timezone.now(), error="refused", remedy="Start it.")
    failing = admin_client.get(page_of("triggers_source", source)).content.decode()
    assert "It cannot be read" in failing and "Start it." in failing


def test_metrics_show_the_lag_and_the_poison_of_a_source(client: Client, source: Source) -> None:
    make_reading(source, lag=56)
    make_poison(source)

    metrics = client.get("/metrics").content.decode()

    assert 'wakeful_source_lag{source="orders"} 56.0' in metrics
    assert 'wakeful_messages_poison{source="orders"} 1.0' in metrics


def test_a_gap_is_a_problem_for_a_day_a_figure_and_a_line_of_the_page(
    admin_client: Client, client: Client, source: Source
) -> None:
    make_reading(source)
    make_gap(source)
    make_gap(source, 2, start="7", end="1006", count=1000)
    make_gap(source, 3, start="1", at=timezone.now() - timedelta(days=2))
    make_gap(source, 4, at=timezone.now() - timedelta(days=3), since=timezone.now() - timedelta(days=4), times=1234)

    found = {problem.name: problem for problem in problems(read_situation())}
    page = admin_client.get(page_of("triggers_source", source)).content.decode()

    assert "2 gaps of the last day: 1,003 messages (trimmed) had no event" in found["source-gap:orders"].text
    assert "1,234, since" in page
    assert "1006" in page and "trimmed" in page and "Gaps are seen: entries that were trimmed" in page
    assert 'wakeful_source_gaps{source="orders"} 2.0' in client.get("/metrics").content.decode()


def test_a_source_with_many_gaps_and_poison_messages_hides_no_other(client: Client, source: Source) -> None:
    noisy, before = Source.objects.create(slug="noisy", kind="redis_streams", settings=SETTINGS), timezone.now()
    make_gap(source, at=before - timedelta(minutes=1))
    make_poison(source, last_at=before - timedelta(minutes=1))
    for table, columns, values in (
        ("triggers_sourcegap", 'gap_id, stream, reason, start, "end"', "'', 'trimmed', '', ''"),
        ("triggers_poisonmessage", "message_id, origin, reason, body, size, headers", "'', 'no field', '', 0, '{}'"),
    ):
        execute(
            f"INSERT INTO {table} (source_id, {columns}) SELECT %s, number::text, {values} FROM generate_series(1, {COUNTED}) number",  # noqa: S608  (our own parts)
            [noisy.pk],
        )

    assert names() >= {"source-gap:orders", "source-gap:noisy", "poison:orders", "poison:noisy"}
    metrics = client.get("/metrics").content.decode()
    assert (
        'wakeful_source_gaps{source="orders"} 1.0' in metrics
        and 'wakeful_messages_poison{source="orders"} 1.0' in metrics
    )


@pytest.mark.parametrize(
    ("kind", "settings", "why"),
    [
        ("amqp", {"url": "amqp://localhost", "queue": "orders"}, "a queue does not number its messages"),
        ("github", {}, "a delivery that its sender gives up leaves no trace here"),
    ],
)
def test_a_kind_that_cannot_see_gaps_has_a_notice_on_its_page_and_in_its_form(
    admin_client: Client, kind: str, settings: dict[str, str], why: str
) -> None:
    source = Source.objects.create(slug="queue", kind=kind, settings=settings)

    page = admin_client.get(page_of("triggers_source", source)).content.decode()
    form = admin_client.get(f"/admin/triggers/source/add/?choice={kind}").content.decode()

    assert page.count(f"Gaps cannot be seen: {why}") == 1
    assert form.count(f"Gaps cannot be seen: {why}") == 1
