"""Where numbers come from: JSON, Prometheus, a query on a real database, and Wakeful itself."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from tests.support.console import make_source
from tests.support.list_server import ListServer, Page, serving_lists
from tests.triggers.sources.metrics.test_samples import make_pushed, take, types
from triggers.models import MetricSample, MetricSeries, PoisonMessage, Source
from triggers.sources.kind import kinds
from triggers.sources.metrics import samples
from triggers.sources.metrics.arm import arm
from triggers.sources.metrics.metric import Metric
from triggers.sources.metrics.sql_query import rows_of
from triggers.sources.runner import Assignment, Batch, SourceError
from triggers.sources.settings import InvalidSettings


@pytest.fixture
def site(settings: Any) -> Any:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    with serving_lists() as site:
        yield site


def read(kind: str, *, source: Source | None = None, secret: str = "", **settings: Any) -> Batch:
    runner = kinds()[kind]
    assert isinstance(runner, Metric)
    assignment: Assignment[Any] = Assignment(
        slug="load", settings=runner.clean_settings(settings), secret=secret, source_id=source.pk if source else uuid4()
    )
    reader = runner.connect(assignment)
    return reader.read(0.1)


def kept(kind: str, *, secret: str = "", **settings: Any) -> dict[str, float]:
    batch = read(kind, source=make_source("load", kind=kind), secret=secret, **settings)
    assert batch.keep and not batch.failure
    with transaction.atomic():
        batch.keep()
    return dict(MetricSample.objects.values_list("series__name", "value"))


def answer(value: Any) -> Page:
    return Page(json.dumps(value).encode())


def dsn() -> str:
    of = connection.settings_dict
    return f"postgresql://{of['USER']}:{of['PASSWORD']}@{of['HOST']}:{of['PORT']}/{of['NAME']}"


@pytest.mark.django_db
def test_a_number_in_json_is_a_sample(site: ListServer) -> None:
    site.pages["/load"] = answer({"data": {"load": "0.75"}})

    assert kept("json_number", url=site.url("/load"), value_path="data.load") == {"": 0.75}


@pytest.mark.django_db
def test_a_list_in_json_is_a_sample_of_each_series(site: ListServer) -> None:
    site.pages["/disks"] = answer({"disks": [{"name": "sda", "used": 81}, {"name": "sdb", "used": 12.5}]})

    assert kept("json_number", url=site.url("/disks"), items_path="disks", value_path="used") == {
        "sda": 81,
        "sdb": 12.5,
    }


@pytest.mark.django_db
def test_each_set_of_labels_of_a_prometheus_answer_is_a_series(site: ListServer) -> None:
    vector = [
        {"metric": {"__name__": "up", "job": "web"}, "value": [1.7e9, "3"]},
        {"metric": {"job": "db", "code": "500"}, "value": [1.7e9, "NaN"]},
    ]
    site.pages["/api/v1/query?query=sum%28up%29"] = answer({"data": {"resultType": "vector", "result": vector}})

    assert kept("prometheus", url=site.url(""), query="sum(up)") == {'job="web"': 3.0}


@pytest.mark.parametrize("value", [{"data": None}, {"data": "many"}, []])
def test_an_answer_without_the_number_is_an_error_with_a_remedy(site: ListServer, value: Any) -> None:
    site.pages["/load"] = answer(value)

    failure = read("json_number", url=site.url("/load"), value_path="data").failure

    assert failure and "no number" in str(failure) and failure.remedy


@pytest.mark.django_db
def test_missing_data_is_seen_while_the_source_does_not_answer(site: ListServer) -> None:
    source = make_pushed()
    take(source, [1])
    arm(source, "missing", {"after": "10m"}, by="test")
    site.pages["/load"] = Page(status=500)

    batch = read("json_number", source=source, url=site.url("/load"))

    assert batch.failure and batch.position is None and batch.keep
    batch.keep()
    assert types() == ["metric.opened"]


@pytest.mark.django_db
def test_samples_that_cannot_be_stored_are_shown_once_a_day_with_the_reason(
    site: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(samples, "MOST_SERIES", 1)
    site.pages["/disks"] = answer({"disks": [{"name": name, "n": 1} for name in ("a", "b", "c", "d\u0007")]})

    assert kept("json_number", url=site.url("/disks"), items_path="disks", value_path="n") == {"a": 1}

    assert sorted(PoisonMessage.objects.values_list("reason", flat=True)) == [
        "'b': the source has 1 series already",
        "'d\\x07': its series must be at most 200 printable characters",
    ]


@pytest.mark.django_db(transaction=True)
def test_a_query_is_read_only_has_a_time_out_and_its_rows_are_series() -> None:
    query = "SELECT 'disk', name, n FROM (VALUES ('a', 1.5), ('b', NULL)) AS of(name, n)"

    assert kept("sql_query", secret=dsn(), query=query) == {"disk a": 1.5}
    for wrong, said in (
        ("CREATE TABLE planted (id int)", "read-only"),
        ("SELECT 1; COMMIT; CREATE TABLE planted (id int)", "multiple commands"),
        ("SELECT pg_sleep(3), 1", "statement timeout"),
    ):
        with pytest.raises(SourceError, match=said):
            rows_of(dsn(), wrong, seconds=1, most=10)
    assert len(rows_of(dsn(), "SELECT generate_series(1, 10000000)", seconds=10, most=3)) == 3


def test_a_connection_string_names_its_host() -> None:
    for wrong in ("nonsense", "dbname=postgres", " "):
        with pytest.raises(InvalidSettings):
            kinds()["sql_query"].clean_secret(wrong)


@pytest.mark.django_db
@pytest.mark.parametrize("figure", ["runs that wait", "longest wait", "share of failed runs", "undispatched events"])
def test_figures_of_wakeful_itself_are_samples(figure: str) -> None:
    found = kept("own_figures", figure=figure)

    assert all(value == 0 for value in found.values())
    assert MetricSeries.objects.count() == len(found)
