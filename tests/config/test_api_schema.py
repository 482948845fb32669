"""The OpenAPI schema is what the API answers. `tests.support.api` holds the answers of all other tests against it as well."""

import os
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.core.exceptions import FieldDoesNotExist
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from drf_spectacular.validation import validate_schema
from jsonschema import Draft202012Validator
from rest_framework.serializers import ModelSerializer

from config.api_document import _document
from tests.support.api import Api
from tests.support.console import make_one_of_each
from tests.support.journals import make_approval, make_wait
from tests.support.openapi import complaints, components, schema
from tests.support.runs import make_run
from tests.support.triggers import hold
from tests.triggers.upcoming.test_listing import put_wake
from triggers.models import Gate, Skip

pytestmark = pytest.mark.django_db

NAMES = Path(__file__).with_name("operations.txt")
QUERIES = {"/api/v1/schedules/{id}/why/": {"at": "2050-01-01T09:00"}}
LINES = "/api/v1/events/export/"  # no JSON
SAMPLES: dict[str, Any] = {
    "DateTimeField": timezone.now,
    "TimeField": lambda: timezone.now().time(),
    "DurationField": lambda: timedelta(hours=1),
    "UUIDField": uuid4,
    "JSONField": dict,
    "TextField": lambda: "text",
    "ArrayField": list,
    "BinaryField": bytes,
}


def test_the_schema_is_valid_and_complete() -> None:
    validate_schema(schema())  # type: ignore[no-untyped-call]

    assert complaints() == []
    assert "/api/v1/triggers/{slug}/fire/" in schema()["paths"]


def test_operations_have_names_that_stay() -> None:
    """Programs call a generated client by these: `WRITE=1` writes down a new operation, and a renamed one breaks them."""
    named = "".join(f"{one['operationId']}  {method.upper()} {path}\n" for path, method, one in operations())
    if "WRITE" in os.environ:
        NAMES.write_text(named)

    assert named == NAMES.read_text()
    assert max(Counter(one["operationId"] for _, _, one in operations()).values()) == 1
    for _, _, one in operations():
        [group] = one["tags"]
        assert one["operationId"].startswith(f"{group.replace('-', '_')}_"), one["operationId"]


def test_each_operation_describes_its_refusals() -> None:
    for path, _, one in operations():
        if path.startswith("/api/"):
            described = set(one["responses"])
            assert {"401", "403", "503"} <= described, path
            assert "404" in described or "{" not in path, path
            assert {"400", "411", "413"} <= described or "requestBody" not in one, path


def test_the_document_is_made_once_and_cached_by_its_etag() -> None:
    first = Client().get("/api/schema/", {"format": "json"})
    made = _document.cache_info().misses
    again = Client().get("/api/schema/", {"format": "json"}, headers={"If-None-Match": first["ETag"]})

    assert first["Cache-Control"] == again["Cache-Control"] == "public, max-age=60"
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert _document.cache_info().misses == made
    assert Client().get("/api/schema/")["ETag"] != first["ETag"]  # YAML


def test_the_document_is_the_same_for_everyone_so_no_token_is_looked_up() -> None:
    with CaptureQueriesContext(connection) as queries:
        answer = Client().get("/api/schema/", headers={"Authorization": "Bearer wrong"})

    assert answer.status_code == 200 and answer["ETag"] == Client().get("/api/schema/")["ETag"]
    assert not [query for query in queries if "apitoken" in query["sql"]]


def operations() -> list[tuple[str, str, Any]]:
    return [(path, method, one) for path, methods in schema()["paths"].items() for method, one in methods.items()]


def test_each_get_answers_as_described_also_where_all_that_may_be_null_is_the_other_way_round() -> None:
    make_rows()
    api = Api()

    answered = {path: [api.get(url, **QUERIES.get(path, {})).status for url in urls_of(api, path)] for path in gets()}
    turned = sum(turn(row, column) for row in rows() for column in row._meta.concrete_fields if column.null)
    again = {path: [api.get(url, **QUERIES.get(path, {})).status for url in urls_of(api, path)] for path in gets()}

    assert {path for path, statuses in answered.items() if set(statuses) != {200}} == set()
    assert {path for path, statuses in again.items() if set(statuses) - {200}} == set()
    assert turned > 80  # the others are bound to a status by a constraint


def test_the_schema_allows_whatever_a_column_may_be() -> None:
    refused = {
        f"{name}.{field}": value
        for name, serializer in serializers().items()
        for field, value in emptiest(serializer)
        if not valid(components()["schemas"][name]["properties"][field], value)
    }

    assert len(serializers()) > 25
    assert refused == {}


def gets() -> list[str]:
    """The paths of the schema that answer with JSON to a GET."""
    return [
        path
        for path, methods in schema()["paths"].items()
        if "get" in methods and path.startswith("/api/v1/") and path != LINES
    ]


def urls_of(api: Api, path: str) -> Iterator[str]:
    """The addresses below /api/v1/ that it has for the rows that there are."""
    before, brace, behind = path.removeprefix("/api/v1/").partition("{")
    if not brace:
        yield before
        return
    name, _, rest = behind.partition("}/")
    for row in api.get(before).body["results"]:
        yield f"{before}{row[name]}/{rest}"


def make_rows() -> None:
    made = make_one_of_each(1)
    schedule, trigger, event = made["triggers_schedule"], made["triggers_trigger"], made["triggers_event"]
    now = timezone.now()
    Skip.objects.create(schedule=schedule, reason="missed", first=now, last=now)
    Gate.objects.create(trigger=trigger, agent=trigger.agent, last_answer="quiet", last_at=now)
    hold(event, trigger)
    put_wake(trigger, now + timedelta(minutes=10), "look again")
    make_approval(make_run(status="waiting"), arguments={"n": 1})
    make_wait(make_run(status="waiting"), "event", event_type="visitor.*")


def rows() -> Iterator[Any]:
    for model in {serializer.Meta.model for serializer in serializers().values()}:
        yield from model._base_manager.all()


def turn(row: Any, column: Any) -> bool:
    """Set a column that is null, or the other way round, where no constraint forbids it."""
    sample = SAMPLES.get(column.get_internal_type(), lambda: 1)
    given = sample() if getattr(row, column.attname) is None else None
    if given is not None and column.is_relation:
        return False
    with suppress(DatabaseError), transaction.atomic():
        row._meta.model._base_manager.filter(pk=row.pk).update(**{column.name: given})
        return True
    return False


def serializers(base: Any = ModelSerializer) -> dict[str, Any]:
    """Those of rows, by the name that the schema gives them."""
    found: dict[str, Any] = {}
    for one in base.__subclasses__():
        name = one.__name__.removesuffix("Serializer")
        found |= serializers(one)
        if one.__module__.startswith(("runs.", "triggers.")) and name in components()["schemas"]:
            found[name] = one
    return found


def emptiest(serializer: Any) -> Iterator[tuple[str, Any]]:
    """Fields whose columns, or the rows on the way to them, may be null; or that have choices and may be empty."""
    for name, field in serializer().fields.items():
        model = serializer.Meta.model
        for part in field.source_attrs:
            try:
                column = model._meta.get_field(part)
            except FieldDoesNotExist:  # an annotation or a property
                break
            if column.one_to_many or column.many_to_many:
                break
            if column.null:
                yield name, None
            if getattr(column, "choices", None) and column.blank:
                yield name, ""
            model = column.related_model


def valid(described: Any, value: Any) -> bool:
    return bool(Draft202012Validator({**described, "components": components()}).is_valid(value))
