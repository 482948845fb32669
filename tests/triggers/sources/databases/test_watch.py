"""A problem of a slot is reported before its server's disk is full, whether it is read or not."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.test import Client

from config.health.problems import problems
from config.health.situation import read_situation
from runs.sign import Problem
from tests.support.console import page_of
from tests.support.foreign import PASSWORD, ForeignDatabase
from tests.support.hooks import add_secret
from triggers.models import Source, WatchedSlot
from triggers.sources.databases import server
from triggers.sources.databases.server import Server, SlotFacts
from triggers.sources.databases.slot import ReplicationSlot
from triggers.sources.databases.watch import Finding, Watcher, finding, look_after

MB, GB = 2**20, 2**30
FINE = SlotFacts(
    version=180000, wal_level="logical", keep="-1", database="shop", role="reader", has_publication=True, has_events=False, has_slot=True,
    plugin="pgoutput", slot_database="shop", is_active=True, active_pid=7, wal_status="reserved", invalidation="",
    confirmed="0/1", safe=None, retained=10 * MB, behind=0, reader="wakeful-shop (pid 7, local)",
)  # fmt: skip


def found(*, unread: int = 0, enabled: bool = True, **changed: Any) -> Finding:
    settings = ReplicationSlot().clean_settings({"url": "postgresql://u@h/d", "alarm_mb": 1024})
    source = Source(slug="shop", kind="postgresql", enabled=enabled)
    return finding(replace(FINE, **changed), settings, source, timedelta(minutes=unread))


@pytest.mark.parametrize(
    ("changed", "message", "is_bad"),
    [
        ({}, "", False),
        ({"has_slot": False}, "", False),
        ({"unread": 9, "is_active": False}, "", False),
        ({"unread": 11, "is_active": False}, "not been read for 11 minutes", False),
        ({"unread": 11, "is_active": False, "enabled": False}, "the source is disabled", False),
        ({"retained": 2 * GB}, "2.0 GiB of WAL at its server (wakeful-shop", True),
        ({"retained": 2 * GB, "is_active": False, "reader": None}, "nothing reads it", True),
        ({"retained": 600 * MB, "safe": 400 * MB}, "lost after another 400.0 MiB", True),
        ({"retained": 600 * MB, "safe": 700 * MB}, "", False),
        ({"wal_status": "unreserved"}, "about to be lost", True),
        ({"wal_status": "lost"}, "is lost", True),
        ({"invalidation": "idle_timeout"}, "idle_timeout", True),
    ],
)
def test_the_worst_that_is_wrong_is_reported(changed: dict[str, Any], message: str, is_bad: bool) -> None:
    problem = found(**changed)

    assert (message in problem.problem, bool(problem.problem), problem.is_bad) == (True, bool(message), is_bad)
    assert bool(problem.remedy) == bool(message)


def of_the_slot() -> Problem | None:
    return next((problem for problem in problems(read_situation()) if problem.name == "source-slot:shop"), None)


@pytest.mark.django_db
def test_wal_that_an_unread_slot_keeps_is_an_alarm_and_stands_on_the_page(
    foreign: ForeignDatabase, client: Client, django_user_model: Any
) -> None:
    foreign.run("CREATE TABLE orders (id int PRIMARY KEY, filler text)")
    foreign.publish("orders")  # first: it waits for transactions that have written
    client.force_login(django_user_model.objects.create_superuser("ada"))
    source = Source.objects.create(slug="shop", kind="postgresql", settings={**foreign.settings, "alarm_mb": 2})
    add_secret(source, PASSWORD)

    assert Watcher().errand() == 0.0
    assert of_the_slot() is None
    foreign.run("INSERT INTO orders SELECT n, repeat('x', 1000) FROM generate_series(1, 3000) n")
    look_after(source.pk)

    problem = of_the_slot()
    assert problem and problem.is_alarm and "MiB of WAL at its server (nothing reads it)" in problem.text
    assert "manage.py slot drop shop" in problem.remedy
    page = client.get(page_of("triggers_source", source)).content.decode()
    assert "Replication slot" in page and "manage.py slot drop shop" in page


@pytest.mark.django_db
def test_a_database_that_does_not_answer_leaves_what_was_seen_and_does_not_hold_the_watch(
    foreign: ForeignDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Source.objects.create(slug="shop", kind="postgresql", settings=foreign.settings)
    add_secret(source, PASSWORD)
    WatchedSlot.objects.create(source=source, looked_at="2026-01-01T00:00Z", problem="It fills the disk.", is_bad=True)
    frozen = Server(foreign.owner_url, "test")
    monkeypatch.setattr(server, "ANSWERS_WITHIN", 0.05)

    with pytest.raises(psycopg.Error):
        frozen.rows("SELECT pg_sleep(10)")
    frozen.close()
    foreign.run(f"ALTER ROLE {foreign.role} NOLOGIN")
    look_after(source.pk)

    seen = WatchedSlot.objects.get()
    assert seen.problem == "It fills the disk." and "not permitted to log in" in seen.error
