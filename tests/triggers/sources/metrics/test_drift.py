"""Two states that differ are an event when they begin to, and another one when they are equal again."""

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import transaction

from agents import AgentRun, agent, on, registry
from tests.support.console import make_source
from tests.triggers.sources.metrics.test_kinds import dsn
from tests.triggers.sources.metrics.test_samples import types
from triggers.declarations.sync import sync
from triggers.models import DetectorState, Event, MetricDetector, MetricSample, MetricSeries, Source, Trigger
from triggers.sources.kind import kinds
from triggers.sources.metrics.arm import disarm
from triggers.sources.metrics.difference import SHOWN, Unusable, difference_of, rows_of
from triggers.sources.metrics.drift import Drift
from triggers.sources.runner import Assignment, SourceError
from triggers.sources.settings import InvalidSettings

ROLES = ["viewer", "operator"]


def expected_groups() -> list[str]:
    return ROLES


def actual_groups() -> list[str]:
    return list(Group.objects.filter(name__in=["viewer", "operator", "stray"]).values_list("name", flat=True))


def endless() -> Iterator[int]:
    return count()


def writes() -> list[str]:
    Group.objects.create(name="planted")
    return []


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> on.DriftTrigger:
    monkeypatch.setattr(registry, "_agents", {})
    trigger = on.drift(expected_groups, actual_groups, every="1m")

    @agent("keeper", triggers=[trigger])
    def keeper(run: AgentRun) -> None: ...

    @agent("careless", triggers=[on.drift(expected_groups, writes, every="1m")])
    def careless(run: AgentRun) -> None: ...

    @agent("patient", triggers=[on.drift(expected_groups, endless, every="1m")])
    def patient(run: AgentRun) -> None: ...

    return trigger


def poll(source: Source, *, secret: str = "") -> None:
    kind = kinds()["drift"]
    assert isinstance(kind, Drift)
    settings = kind.clean_settings(source.settings)
    reader = kind.connect(Assignment(slug=source.slug, settings=settings, secret=secret, source_id=source.pk))
    batch = reader.read(0.1)
    assert batch.keep
    with transaction.atomic():
        batch.keep()
    if batch.failure:
        raise batch.failure


def test_rows_that_are_missing_unexpected_or_different_are_named_and_only_some_of_them() -> None:
    expected = rows_of({"a": 1, "b": Decimal("2.5"), "c": {"size": (1, 2)}})
    actual = rows_of([("b", "2.5"), {"id": "c", "size": 3}, *[(f"x{number:03}", 1) for number in range(100)]])

    found = difference_of(expected, actual)

    assert (found.missing, len(found.unexpected), found.different, found.size) == (["a"], 100, ["b", "c"], 103)
    assert len(found.detail["examples"]["unexpected"]) == SHOWN and len(json.dumps(found.detail)) < 10_000


@pytest.mark.parametrize("state", ["text", 5, [("a", 1), ("a", 2)], [()]])
def test_a_state_that_is_no_list_of_rows_is_refused(state: Any) -> None:
    with pytest.raises(Unusable):
        rows_of(state)


def test_values_that_are_no_json_are_compared_and_shown_as_text() -> None:
    nowhere = {"name\0": float("nan"), "caf\udce9": "\0", "same": float("nan")}  # such as names of files
    found = difference_of(rows_of(nowhere), rows_of({"same": float("nan")}))

    assert found.different == [] and found.detail["missing"] == 2
    shown = json.dumps(found.detail, allow_nan=False)
    assert "\\u0000" not in shown and "\\udce9" not in shown  # jsonb takes neither


@pytest.mark.django_db
def test_a_declared_drift_opens_worsens_by_doubling_and_closes(declared: on.DriftTrigger) -> None:
    sync()
    source = Source.objects.get(slug="keeper")
    assert Trigger.objects.get(slug="keeper").types == ["drift.opened", "drift.worsened"]

    poll(source)
    Group.objects.get(name="operator").delete()
    poll_later(source)
    poll_later(source)
    Group.objects.create(name="stray")
    poll_later(source)
    Group.objects.filter(name="stray").delete()
    Group.objects.create(name="operator")
    poll_later(source)

    assert types() == ["drift.opened", "drift.worsened", "drift.closed"]
    opened, worsened, _ = Event.objects.order_by("seq")
    assert opened.source == source and opened.data and worsened.data
    assert opened.data["value"] == 1
    assert opened.data["detail"]["examples"]["missing"] == [{"key": "operator", "expected": "[]"}]
    assert worsened.data["detail"]["unexpected"] == 1


def poll_later(source: Source) -> None:
    """A series has one sample in a second."""
    MetricSample.objects.all().delete()
    MetricSeries.objects.update(last_at=None)
    for state in DetectorState.objects.all():
        state.seen_at = state.seen_at.replace(year=2020)
        state.save()
    poll(source)


@pytest.mark.django_db
def test_a_detector_that_an_operator_disarmed_stays_disarmed(declared: on.DriftTrigger) -> None:
    sync()
    source = Source.objects.get(slug="keeper")
    poll(source)

    disarm(MetricDetector.objects.get(), by="test")
    Group.objects.filter(name="operator").delete()
    poll_later(source)

    assert types() == [] and MetricDetector.objects.count() == 1


@pytest.mark.django_db(transaction=True)
def test_a_declared_function_reads_only(declared: on.DriftTrigger) -> None:
    sync()

    with pytest.raises(Exception, match="read-only"):
        poll(Source.objects.get(slug="careless"))

    assert not Group.objects.filter(name="planted").exists()


@pytest.mark.django_db
def test_a_declared_function_without_end_is_an_error(declared: on.DriftTrigger) -> None:
    sync()

    with pytest.raises(SourceError, match="more than 50,000 rows"):
        poll(Source.objects.get(slug="patient"))


@pytest.mark.django_db(transaction=True)
def test_two_queries_are_compared() -> None:
    settings = {"expected": "SELECT 'a', 1 UNION SELECT 'b', 2", "actual": "SELECT 'a', 1 UNION SELECT 'b', 3"}
    source = make_source("state", kind="drift", settings=settings)

    poll(source, secret=dsn())

    event = Event.objects.get()
    assert event.type == "drift.opened" and event.data
    assert event.data["detail"]["examples"]["different"] == [{"key": "b", "expected": "[2]", "actual": "[3]"}]
    with pytest.raises(SourceError, match="no connection string"):
        poll(source)


def test_only_functions_that_the_code_declares_can_be_named(declared: on.DriftTrigger) -> None:
    kind = kinds()["drift"]
    kind.check(declared.settings)

    with pytest.raises(InvalidSettings):
        kind.check({**declared.settings, "actual": "callable os.abort"})
    with pytest.raises(TypeError):
        on.drift(lambda: [], actual_groups)
