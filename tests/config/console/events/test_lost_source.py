"""The database refuses to delete a source with events. An event that has lost its source anyway is shown, and can get one again."""

from importlib import import_module
from uuid import uuid4

import pytest
from django.db import connection
from django.db.migrations.state import ProjectState
from django.test import Client

from runs.db.sql import execute, fetch
from tests.support.console import page_of
from tests.support.late import INSERT
from tests.support.old_rows import ago, id_of
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event

pytestmark = pytest.mark.django_db


def make_orphan() -> Event:
    """As a transaction leaves it that began before its source was deleted."""
    id = id_of(ago(minutes=1))
    execute(INSERT, {"id": id, "source": uuid4(), "type": "visitor.came"})
    dispatch(Rules())
    return Event.objects.get(pk=id)


def test_the_page_of_an_event_shows_that_its_source_is_deleted(admin: Client) -> None:
    event = make_orphan()

    response = admin.get(page_of("triggers_event", event))

    assert response.status_code == 200
    assert f"{event.source_id} (deleted)" in response.content.decode()


def test_the_reverse_of_the_migrations_gives_each_event_a_source_for_its_foreign_key() -> None:
    event = make_orphan()
    [operation] = import_module(
        "triggers.migrations.0012_deletions_of_sources_keep_no_writer_waiting"
    ).Migration.operations

    with connection.schema_editor() as editor:
        operation.database_backwards("triggers", editor, ProjectState(), ProjectState())
    execute("SET CONSTRAINTS ALL IMMEDIATE")
    execute("ALTER TABLE triggers_event ADD CONSTRAINT again FOREIGN KEY (source_id) REFERENCES triggers_source (id)")

    assert fetch("SELECT slug, enabled FROM triggers_source WHERE id = %s", [event.source_id]) == [
        (f"deleted-{event.source_id}", False)
    ]
