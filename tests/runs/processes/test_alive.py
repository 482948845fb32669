"""A process is alive until its row expires, or its session has vanished."""

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now
from django.utils import timezone

from runs.db.sql import fetch
from runs.models import Worker
from runs.processes.alive import TAKES_RUNS, alive
from runs.processes.lease import SPACE, Clock, Presence, patience, renew
from runs.processes.rescue import Rescuer, close_unseen

pytestmark = pytest.mark.django_db(transaction=True)

SECOND = timedelta(seconds=1)


@pytest.fixture
def other_session() -> Iterator[psycopg.Connection[object]]:
    """Of another process. The test's own holds what it has taken as well, until it is closed."""
    parameters = connection.get_connection_params()
    wanted = {name: parameters[name] for name in ("dbname", "host", "port", "user", "password")}
    with psycopg.connect(**wanted, autocommit=True) as session:
        yield session


def make_row(kind: str = "worker", *, seen: timedelta, until: timedelta | None) -> Worker:
    """Last seen so long ago, and alive until then."""
    row: Worker = Worker.objects.create(kind=kind, host="here", pid=1, version="1")
    now = timezone.now()
    Worker.objects.update(seen_at=now - seen, expires_at=None if until is None else now + until)
    return row


def hold(session: psycopg.Connection[object], row: Worker) -> None:
    session.execute("SELECT pg_advisory_lock_shared(%s::int, hashtext(%s::text))", [SPACE, str(row.id)])


def is_alive() -> bool:
    return alive().exists()


def may_claim() -> bool:
    return bool(fetch(f"SELECT id FROM runs_worker worker WHERE {TAKES_RUNS}", patience()))  # noqa: S608


@pytest.mark.parametrize("kind", Worker.Kind.values)
def test_one_that_rests_is_alive_between_two_of_its_renewals(
    kind: str, other_session: psycopg.Connection[object]
) -> None:
    hold(other_session, make_row(kind, seen=20 * SECOND, until=20 * SECOND))

    assert is_alive()
    close_unseen()
    assert is_alive()


@pytest.mark.parametrize("kind", Worker.Kind.values)
def test_one_whose_session_has_vanished_is_dead_long_before_its_row_expires(kind: str) -> None:
    make_row(kind, seen=4 * SECOND, until=36 * SECOND)

    assert not is_alive()


def test_one_that_has_just_been_seen_has_time_to_come_back(other_session: psycopg.Connection[object]) -> None:
    make_row(seen=3 * SECOND, until=5 * SECOND)

    assert is_alive()


def test_one_that_is_frozen_is_dead_when_its_row_expires(other_session: psycopg.Connection[object]) -> None:
    hold(other_session, make_row(seen=9 * SECOND, until=-SECOND))

    assert not is_alive()
    assert not may_claim()
    close_unseen()
    assert Worker.objects.get().stopped_reason == "unseen"


def test_the_rescuer_closes_the_row_of_a_worker_whose_session_has_vanished() -> None:
    make_row(seen=4 * SECOND, until=4 * SECOND)

    close_unseen()

    assert Worker.objects.get().stopped_reason == "unseen"


@pytest.mark.parametrize("kind", ["sources", "caller"])
def test_another_process_whose_session_has_vanished_keeps_what_it_owns_until_its_lease_ends(kind: str) -> None:
    make_row(kind, seen=4 * SECOND, until=4 * SECOND)

    close_unseen()

    assert Worker.objects.get().stopped_at is None


@pytest.mark.parametrize(
    ("kind", "seen", "lives"), [("worker", 7, True), ("worker", 9, False), ("beat", 29, True), ("beat", 31, False)]
)
def test_a_row_of_an_earlier_version_lives_for_the_time_of_its_kind(kind: str, seen: int, lives: bool) -> None:
    make_row(kind, seen=seen * SECOND, until=None)

    assert is_alive() is lives
    close_unseen()
    assert (Worker.objects.get().stopped_at is None) is lives


def test_a_worker_that_has_rested_may_claim_at_once() -> None:
    make_row(seen=20 * SECOND, until=20 * SECOND)

    assert may_claim()


def test_no_worker_rests_while_an_earlier_version_would_take_its_runs() -> None:
    ours = make_row(seen=SECOND, until=SECOND)
    Worker.objects.create(kind="dispatcher", host="there", pid=2, version="0")
    renewed = renew(ours.id, Clock())
    assert renewed and not renewed.may_rest

    Worker.objects.filter(pid=2).update(stopped_at=Now())
    renewed = renew(ours.id, Clock())
    assert renewed and renewed.may_rest


def test_a_database_clock_that_was_set_back_gives_no_row_a_longer_life() -> None:
    row = make_row(seen=-timedelta(hours=1), until=timedelta(hours=1, seconds=8))

    Rescuer().rescue()

    row.refresh_from_db()
    assert row.expires_at
    assert row.expires_at - row.seen_at == 8 * SECOND
    assert abs(row.seen_at - timezone.now()) < timedelta(minutes=1)


def test_rows_of_a_restored_database_are_of_dead_processes() -> None:
    """The rows say that they are alive; no session of this database holds their locks."""
    for kind in Worker.Kind.values:
        make_row(kind, seen=10 * SECOND, until=30 * SECOND)

    assert not is_alive()


def test_a_process_that_comes_to_own_something_has_a_lease_before_it_does() -> None:
    presence = Presence(Worker.Kind.SOURCES)
    presence.renew()
    presence.owns, presence.renewed_at = False, float("-inf")
    presence.renew()
    assert lasts() == timedelta(seconds=40)

    presence.own()
    assert lasts() == timedelta(seconds=8)


def lasts() -> timedelta:
    row = Worker.objects.get()
    assert row.expires_at
    return timedelta(seconds=round((row.expires_at - row.seen_at).total_seconds()))


def test_a_question_with_a_renewal_has_its_own_answer_also_if_the_row_was_closed() -> None:
    presence = Presence(Worker.Kind.WEB)
    presence.renew()
    Worker.objects.update(stopped_at=Now())
    presence.renewed_at = float("-inf")

    assert presence.ask(dict, "SELECT number FROM generate_series(1, 3) number") == [
        {"number": 1},
        {"number": 2},
        {"number": 3},
    ]
    assert Worker.objects.filter(stopped_at=None).count() == 1
    presence.renewed_at = float("-inf")
    assert presence.ask(dict, "SELECT 1 AS one WHERE false") == []
