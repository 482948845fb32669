"""A NOTIFY instead of a ring, where a child of a worker waits for the queue."""

import time
from collections import Counter
from collections.abc import Collection, Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, transaction

from runs.db.sql import execute, fetch_column
from runs.db.trip import one_trip
from runs.queues.stayers import CLAIMED, LOCK, Stayers, channel_of

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def child() -> Iterator[psycopg.Connection[Any]]:
    """The session of a child that waits for the default queue."""
    given = connection.get_connection_params()
    wanted = {name: given[name] for name in ("host", "port", "user", "password", "dbname") if name in given}
    with psycopg.connect(**wanted, autocommit=True) as session:
        session.execute(f"LISTEN {channel_of('default')}")
        session.execute(LOCK, ["default"])
        yield session
    connection.close()


def committed(stayers: Stayers, queues: Collection[str]) -> None:
    with one_trip() as trip:
        stayers.commit(queues, trip)


def left(stayers: Stayers, **runs: int) -> dict[str, int]:
    """The runs that are left to ring for, after a commit that has made these ready."""
    with transaction.atomic():
        committed(stayers, Counter(runs))
    return stayers.left(runs)


def age(stayers: Stayers, seconds: float) -> None:
    stayers.woken_at = {queue: at - seconds for queue, at in stayers.woken_at.items()}


def test_the_child_that_waits_is_woken_by_the_commit_and_the_other_runs_are_rung_for(child: Any) -> None:
    stayers = Stayers()
    with transaction.atomic():
        execute("CREATE TABLE of_the_batch ()")
        committed(stayers, ["default", "slow"])
        assert [notice.channel for notice in child.notifies(timeout=60, stop_after=1)] == [channel_of("default")]
        assert child.execute("SELECT 'of_the_batch'::regclass").fetchone()  # and it sees what it is woken for
    execute("DROP TABLE of_the_batch")

    assert stayers.left({"default": 3, "slow": 1, "fast": 1}) == {"default": 2, "slow": 1, "fast": 1}


def test_where_no_child_waits_the_lock_stays_free_for_one(child: Any) -> None:
    assert left(Stayers(), slow=1) == {"slow": 1}

    assert child.execute(LOCK, ["slow"]).fetchone() == (True,)


def test_a_batch_that_cannot_wake_is_committed_all_the_same(child: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as when PostgreSQL's queue of NOTIFYs is full."""
    monkeypatch.setattr("runs.queues.stayers.WAKE", "SELECT %(queues)s::text[], %(channels)s::text[], 1 / 0")
    stayers = Stayers()
    with transaction.atomic():
        execute("CREATE TABLE of_the_batch ()")
        committed(stayers, ["default"])
    assert stayers.left({"default": 1}) == {"default": 1}

    assert fetch_column("SELECT to_regclass('of_the_batch') IS NOT NULL") == [True]
    execute("DROP TABLE of_the_batch")
    monkeypatch.undo()
    assert left(stayers, default=1) == {"default": 1}  # for a while


def test_a_batch_that_cannot_be_committed_wakes_none(child: Any) -> None:
    stayers = Stayers()
    with pytest.raises(Exception, match="at the commit"), transaction.atomic():
        execute(
            "CREATE TABLE of_the_batch (one int PRIMARY KEY, two int REFERENCES of_the_batch DEFERRABLE INITIALLY DEFERRED)"
        )
        execute(
            """CREATE FUNCTION pg_temp.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'at the commit'; END $$"""
        )
        execute(
            "CREATE CONSTRAINT TRIGGER refuse AFTER INSERT ON of_the_batch DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION pg_temp.refuse()"
        )
        execute("INSERT INTO of_the_batch VALUES (1)")
        committed(stayers, ["default"])

    assert fetch_column("SELECT to_regclass('of_the_batch') IS NULL") == [True]
    assert stayers.left({"default": 1}) == {"default": 1}
    assert not list(child.notifies(timeout=0))


def test_inside_another_transaction_nothing_is_committed(child: Any) -> None:
    stayers = Stayers()
    with transaction.atomic(), transaction.atomic():
        committed(stayers, ["default"])
        assert connection.in_atomic_block and not list(child.notifies(timeout=0))
        assert execute("SELECT pg_current_xact_id_if_assigned()")
    assert stayers.left({"default": 1}) == {"default": 1}


def test_a_child_that_was_woken_a_moment_ago_is_not_counted_on(child: Any) -> None:
    """It may not have given up its lock yet, and executes another run first."""
    stayers = Stayers()
    assert not left(stayers, default=1)
    age(stayers, -60)  # however long this test takes

    assert left(stayers, default=1)

    age(stayers, 120)
    assert not left(stayers, default=1)


def test_a_child_that_claims_nothing_is_not_counted_on_for_a_while(child: Any) -> None:
    stayers = Stayers()
    assert not left(stayers, default=1)
    age(stayers, 2 * CLAIMED)
    stayers.looked(time.monotonic(), runs_are_left=True)

    assert left(stayers, default=1)

    stayers.rely_at -= 60
    assert not left(stayers, default=1)


def test_a_look_that_began_before_a_child_could_claim_does_not_count(child: Any) -> None:
    """However long it took."""
    stayers = Stayers()
    assert not left(stayers, default=1)
    [woken_at] = stayers.woken_at.values()
    stayers.looked(woken_at + CLAIMED / 2, runs_are_left=True)

    age(stayers, 60)
    assert not left(stayers, default=1)


def test_where_none_may_stay_none_is_woken(child: Any, settings: Any) -> None:
    settings.WAKEFUL_STAY = timedelta(0)

    assert left(Stayers(), default=1)
