"""A declaration on a model whose migration is not applied waits for its table; everything else starts."""

import pytest
from django.contrib.auth.models import Group, User
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from agents import AgentRun, agent, on, registry
from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.sql import execute
from triggers.declarations.sync import sync
from triggers.models import Event, Source, Trigger, WatchedTable
from triggers.sources.databases.tables.keep import keep_tables

pytestmark = pytest.mark.django_db


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_agents", {})

    @agent("clerk", triggers=[on.model_change(Group, fields=["name"], when=Q(name__startswith="re"))])
    def clerk(run: AgentRun) -> None: ...

    @agent("reader", triggers=[on.event("invoice.paid")])
    def reader(run: AgentRun) -> None: ...


@pytest.mark.usefixtures("declared")
def test_a_model_without_a_table_stops_nothing_else_and_is_watched_when_the_table_is_there() -> None:
    execute("ALTER TABLE auth_group RENAME TO later")

    changes = [str(change) for change in sync()]
    keep_tables()

    assert {*Trigger.objects.values_list("slug", flat=True)} == {"clerk", "reader"}
    [waiting] = [one for one in changes if one.startswith("waiting source clerk")]
    assert "auth.Group has no table yet: run manage.py makemigrations, then manage.py migrate" in waiting
    [problem] = [one for one in problems(read_situation()) if one.name == "table:clerk"]
    assert "auth.Group has no table yet: run manage.py makemigrations" in problem.text
    assert "when the migration is applied" in problem.remedy

    execute("ALTER TABLE later RENAME TO auth_group")
    keep_tables()
    Group.objects.create(name="reopened")

    assert [event.type for event in Event.objects.all()] == ["db.auth.group.insert"]
    assert "waiting" not in " ".join(str(change) for change in sync())
    assert WatchedTable.objects.get().error == ""


@pytest.mark.usefixtures("declared")
def test_a_field_whose_column_is_not_migrated_stops_nothing_else() -> None:
    execute("ALTER TABLE auth_group RENAME COLUMN name TO was")
    sync()
    keep_tables()

    assert Trigger.objects.filter(slug="reader").exists()
    assert "the table has no column 'name' yet: run manage.py makemigrations" in WatchedTable.objects.get().error

    Source.objects.update(settings={"table": "auth.Group", "condition": '{"name": "x"}'})
    keep_tables()
    assert "condition: the table has no column 'name' yet" in WatchedTable.objects.get().error


@pytest.mark.usefixtures("declared")
def test_the_pages_of_the_source_and_of_its_trigger_show_that_the_table_is_missing(client: Client) -> None:
    execute("ALTER TABLE auth_group RENAME TO later")
    sync()
    keep_tables()
    client.force_login(User.objects.create_superuser("eve"))

    for row in (Source.objects.get(slug="clerk"), Trigger.objects.get(slug="clerk")):
        address = reverse(f"admin:triggers_{row._meta.model_name}_change", args=[row.pk])
        page = client.get(address).content.decode()
        assert "auth.Group has no table yet: run manage.py makemigrations" in page
        assert "Its triggers are made when the migration is applied" in page


def test_a_condition_on_a_secret_ends_the_triggers_that_an_earlier_version_has_made() -> None:
    execute("CREATE TABLE ticket (id int PRIMARY KEY, api_token text)")
    source = Source.objects.create(slug="tickets", kind="table", settings={"table": "public.ticket"})
    keep_tables()
    Source.objects.filter(pk=source.pk).update(
        settings={"table": "public.ticket", "condition": '{"api_token__startswith": "a"}'}
    )

    keep_tables()

    assert "must not look at api_token" in WatchedTable.objects.get().error
    execute("INSERT INTO ticket VALUES (1, 'abc')")
    assert not Event.objects.exists()
