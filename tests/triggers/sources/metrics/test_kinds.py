"""Where numbers come from: JSON, Prometheus, a query on a real database, and Wakeful itself."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from runs.models import Run
from tests.support.console import make_source
from tests.support.list_server import ListServer, Page, serving_lists
from tests.support.runs import make_run
from tests.triggers.sources.metrics.test_samples import make_pushed, take, types
from triggers.models import MetricSample, MetricSeries, PoisonMessage, Source
from triggers.sources.databases.connection import conninfo
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
    disks = [{"name": "sda", "used": 81}, {"name": "sdb", "used": 12.5}, {"name": "sdc", "used": None}]
    site.pages["/disks"] = answer({"disks": disks})

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


def test_a_list_in_which_no_item_has_a_number_is_an_error(site: ListServer) -> None:
    site.pages["/disks"] = answer({"disks": [{"name": "sda"}]})

    assert "No item" in str(read("json_number", url=site.url("/disks"), items_path="disks", value_path="used").failure)


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
def test_missing_data_is_seen_whatever_keeps_a_source_from_being_read(
    site: ListServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triggers.sources.metrics.json_number.read", lambda body: 1 / 0)
    site.pages["/load"] = answer(1)

    batch = read("json_number", url=site.url("/load"))

    assert batch.keep and str(batch.failure) == "ZeroDivisionError: division by zero"


@pytest.mark.django_db
def test_long_names_stay_different_and_a_name_that_comes_twice_is_shown(site: ListServer) -> None:
    long = "a" * 300
    names = [f"{long}1", f"{long}2", "c", "c"]
    site.pages["/disks"] = answer({"disks": [{"name": name, "n": number} for number, name in enumerate(names)]})

    found = kept("json_number", url=site.url("/disks"), items_path="disks", value_path="n")

    assert sorted(found.values()) == [0, 1, 2] and max(map(len, found)) == samples.LONGEST_NAME
    [reason] = PoisonMessage.objects.values_list("reason", flat=True)
    assert reason.startswith("'c': the answer has this series more than once")


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
    query = "SELECT 'disk', name, n FROM (VALUES ('a', 1.5), ('b', NULL), ('c', 'NaN'::float8)) AS of(name, n)"

    assert kept("sql_query", secret=dsn(), query=query) == {"disk a": 1.5}
    for wrong, message in (
        ("CREATE TABLE planted (id int)", "read-only"),
        ("SELECT 1; COMMIT; CREATE TABLE planted (id int)", "multiple commands"),
        ("SELECT pg_sleep(3), 1", "statement timeout"),
        ("SELECT FROM generate_series(1, 2)", "no column"),
    ):
        with pytest.raises(SourceError, match=message):
            rows_of(dsn(), wrong, seconds=1, most=10)
    assert len(rows_of(dsn(), "SELECT generate_series(1, 10000000)", seconds=10, most=3)) == 3


def test_a_connection_string_names_its_host() -> None:
    sockets = ("host=/run/postgresql dbname=wakeful", "host=db,@other dbname=x")  # a user is known there by the process
    for wrong in (
        "nonsense",
        "dbname=postgres",
        " ",
        *sockets,
        "host=db service=wakeful",
        "host=db passfile=/home/ada/.pgpass",
        "host=db sslkeylogfile=/srv/wakeful/env",
        "host=db sslkey=/home/ada/key sslcert=/home/ada/cert",
        "postgresql://u:p@db/d?sslcrldir=/etc",
    ):
        with pytest.raises(InvalidSettings):
            kinds()["sql_query"].clean_secret(wrong)
        with pytest.raises(SourceError, match="connection string must"):  # also one that is stored already
            rows_of(wrong, "SELECT 1", seconds=1, most=1)


@pytest.mark.django_db
def test_a_query_connects_with_no_password_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    of = connection.settings_dict
    monkeypatch.setenv("PGPASSWORD", of["PASSWORD"])
    without = f"host={of['HOST']} port={of['PORT']} user={of['USER']} dbname={of['NAME']}"
    assert "password=''" in conninfo(without) and of["PASSWORD"] not in conninfo(without)
    with pytest.raises(SourceError, match="no password supplied"):
        rows_of(without, "SELECT 1", seconds=1, most=1)


@pytest.mark.django_db
@pytest.mark.parametrize("figure", ["runs that wait", "longest wait", "share of failed runs", "undispatched events"])
def test_figures_of_wakeful_itself_are_samples(figure: str) -> None:
    found = kept("own_figures", figure=figure)

    assert all(value == 0 for value in found.values())
    assert MetricSeries.objects.count() == len(found)


@pytest.mark.django_db
def test_a_queue_without_waiting_runs_gets_a_sample_of_zero() -> None:
    source = make_source("load", kind="own_figures")
    seen = []
    for queues in (["slow", "slow", "default"], ["default"], []):
        Run.objects.all().delete()
        for queue in queues:
            make_run(queue=queue)
        batch = read("own_figures", source=source, figure="runs that wait")
        MetricSample.objects.all().delete()
        with transaction.atomic():
            assert batch.keep
            batch.keep()
        seen.append(dict(MetricSample.objects.values_list("series__name", "value")))
    assert seen == [{"slow": 2, "default": 1}, {"slow": 0, "default": 1}, {"slow": 0, "default": 0}]
