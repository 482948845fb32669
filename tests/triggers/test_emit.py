"""`wakeful.emit` records an event in the transaction of its caller."""

import json
import subprocess
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import DataError, OperationalError, ProgrammingError, connection, transaction

from agents import AgentRun
from agents.kernel.reserved_types import RESERVED
from runs.models import Run
from tests.support.durable import Lab, lab  # noqa: F401  (a fixture)
from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.emit import _schemas
from triggers.models import Event, Redelivery, Source
from wakeful import emit

pytestmark = pytest.mark.django_db
# A project of its own: one connection, no app, no setting of Wakeful's.
PROJECT = """
import sys
from django.conf import settings
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": sys.argv[1], "USER": sys.argv[2], "HOST": sys.argv[3], "PORT": sys.argv[4]}})
import django
django.setup()
from django.db import transaction
from wakeful import emit
print(emit("order.paid", {"order": 1}))
try:
    with transaction.atomic():
        emit("order.paid", {"order": 2})
        raise LookupError
except LookupError:
    pass
print([name for name in sys.modules if name.endswith(".models") and name.startswith(("agents", "runs", "triggers"))])
"""


def in_sql(call: str, *parameters: Any) -> UUID:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT wakeful_emit({call})", parameters)
        return UUID(str(cursor.fetchone()[0]))


def test_an_emitted_event_starts_a_run() -> None:
    make_trigger(types=["order.paid"])

    id = emit("order.paid", {"at": datetime(2026, 11, 26, tzinfo=UTC), "sum": Decimal("9.90")}, subject="order 7")

    dispatch(Rules())
    event = Event.objects.select_related("source").get()
    assert (event.id, event.root_id, event.type, event.subject) == (id, id, "order.paid", "order 7")
    assert event.data == {"at": "2026-11-26T00:00:00Z", "sum": "9.90"}
    assert (event.source.slug, event.depth, event.chain, event.is_tainted) == ("emit", 0, [], False)
    assert Run.objects.get().event_ids == [id]


def test_a_rollback_removes_the_event() -> None:
    with pytest.raises(LookupError), transaction.atomic():
        emit("order.paid", {"order": 1})
        raise LookupError

    assert not Event.objects.exists()


def test_the_same_id_is_one_event_whichever_way_it_comes() -> None:
    first = emit("order.paid", {"order": 1}, id="order-1")

    assert emit("order.paid", {"order": 1}, id="order-1") == first
    assert in_sql("'order.paid', '{}', '', 'order-1'") == first
    assert Event.objects.get().data == {"order": 1}
    assert Redelivery.objects.get().count == 2


def test_the_function_has_defaults_for_all_but_the_type() -> None:
    id = in_sql("'order.paid'")

    event = Event.objects.get()
    assert (event.id, event.ce_id, event.subject, event.data) == (id, str(id), "", None)


@pytest.mark.parametrize("type", ["", " ", "wakeful.any", "Run.Signal ", *RESERVED, "x" * 256, "a\0b"])
def test_a_type_that_is_not_free_is_refused_by_name(type: str) -> None:
    with pytest.raises(ValueError, match=r"^emit: .*(type|reserved)"):
        emit(type, {})
    if "\0" not in type:
        with pytest.raises(DataError, match="wakeful_emit: the type"):
            in_sql("%s::text", type)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ({"data": {"a": "\0"}}, "NUL"),
        ({"data": float("nan")}, "not JSON"),
        ({"data": object()}, "not JSON"),
        ({"data": "\ud800"}, "not JSON"),
        ({"subject": "x" * 1025}, "subject has 1,025"),
        ({"subject": "\0"}, "subject contains a NUL"),
        ({"id": ""}, "id has 0"),
        ({"id": "x" * 256}, "id has 256"),
    ],
)
def test_an_argument_that_cannot_be_stored_is_refused_by_name(arguments: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        emit("order.paid", arguments.pop("data", None), **arguments)
    assert not Event.objects.exists()


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("x" * 17_000_000, "the data has 17000012 bytes"),
        (json.loads("[" * 99 + "]" * 99), "more than 90 levels"),
        (10**400, "a number beyond 1e308"),
    ],
)
def test_data_that_only_the_database_can_judge_is_a_value_error_too(data: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=f"^emit: .*{fault}"), transaction.atomic():
        emit("order.paid", data)
    assert not Event.objects.exists()


def test_no_data_is_none_in_python_and_in_sql() -> None:
    emit("order.paid")
    in_sql("'order.paid'")

    assert Event.objects.filter(data__isnull=True).count() == 2


@pytest.mark.parametrize(
    ("call", "fault"),
    [
        ("'a', NULL, repeat('x', 1025)", "the subject has 1025"),
        ("'a', NULL, '', ''", "the id has 0"),
        ("'a', to_jsonb(repeat('x', 17000000))", "the data has 17000012 bytes"),
        ("'a', (repeat('[', 99) || repeat(']', 99))::jsonb", "more than 90 levels"),
    ],
)
def test_sql_is_refused_by_the_same_limits(call: str, fault: str) -> None:
    with pytest.raises(DataError, match=fault):
        in_sql(call)


@pytest.mark.django_db(transaction=True)
def test_an_event_that_a_run_emits_has_the_run_as_its_cause(lab: Lab) -> None:  # noqa: F811
    def body(run: AgentRun) -> None:
        emit("order.shipped", {"id": 1})

    lab.declare(body, "greeter", durable=False)
    make_trigger()
    first = make_event()
    dispatch(Rules())

    assert lab.claim_and_execute()

    event, run = Event.objects.get(type="order.shipped"), Run.objects.get()
    assert (run.status, event.cause_run_id, event.cause_event_id) == ("succeeded", run.id, first.id)
    assert (event.depth, event.chain, event.root_id) == (1, ["greeter"], first.root_id)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("in_step", [False, True])
def test_a_durable_body_emits_in_steps_alone(lab: Lab, in_step: bool) -> None:  # noqa: F811
    def body(run: AgentRun) -> None:
        if in_step:
            run.step("tell", lambda: str(emit("order.shipped", {"id": 1})))
        else:
            emit("order.shipped", {"id": 1})

    lab.declare(body, "greeter")
    make_trigger()
    make_event()
    dispatch(Rules())
    lab.claim_and_execute()

    run = Run.objects.get()
    assert Event.objects.filter(type="order.shipped", cause_run_id=run.id).count() == in_step
    assert run.status == ("succeeded" if in_step else "failed"), run.error
    assert in_step or "read-only" in run.error


def test_a_role_without_the_right_cannot_emit_and_with_it_needs_no_table() -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE ROLE wakeful_test_shop")
        cursor.execute("SET LOCAL ROLE wakeful_test_shop")
        with pytest.raises(ProgrammingError, match="permission denied"), transaction.atomic():
            emit("order.paid", {})
        cursor.execute("RESET ROLE")
        cursor.execute("GRANT EXECUTE ON FUNCTION wakeful_emit TO wakeful_test_shop")
        cursor.execute("SET LOCAL ROLE wakeful_test_shop")
        id = emit("order.paid", {})
        cursor.execute("RESET ROLE")

    assert Event.objects.get().id == id


def test_a_database_without_wakeful_is_named() -> None:
    with connection.cursor() as cursor:
        cursor.execute("ALTER FUNCTION wakeful_emit RENAME TO gone")
    _schemas.clear()

    with pytest.raises(ImproperlyConfigured, match="the database 'default' has no function wakeful_emit"):
        emit("order.paid", {})


def test_a_function_of_the_same_name_in_another_schema_is_not_called_by_chance() -> None:
    trap = "RETURNS uuid LANGUAGE sql AS 'SELECT gen_random_uuid()'"
    with connection.cursor() as cursor:
        for schema in ("analyst", "wakeful"):
            cursor.execute(f"CREATE SCHEMA {schema}")
            cursor.execute(
                f"CREATE FUNCTION {schema}.wakeful_emit(type text, data jsonb, subject text, id text) {trap}"
            )
        _schemas.clear()
        assert emit("order.paid") == Event.objects.get().id  # that on the path

        cursor.execute("ALTER FUNCTION wakeful_emit(text, jsonb, text, text) RENAME TO gone")
    _schemas.clear()
    with pytest.raises(ImproperlyConfigured, match="in several schemas: analyst, wakeful"):
        emit("order.paid")


def test_the_missing_source_is_named() -> None:
    Source.objects.filter(slug="emit").delete()

    with pytest.raises(OperationalError, match='the source "emit" is missing'):
        emit("order.paid", {})


@pytest.mark.django_db(transaction=True)
def test_a_project_emits_with_nothing_of_wakeful_installed() -> None:
    database = connection.settings_dict
    where = [str(database[name]) for name in ("NAME", "USER", "HOST", "PORT")]
    connection.close()

    done = subprocess.run(
        [sys.executable, "-c", PROJECT, *where],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=60,
        env={"PGPASSWORD": str(database["PASSWORD"])},
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    id, models = done.stdout.splitlines()
    assert (str(Event.objects.get().id), models) == (id, "[]")
