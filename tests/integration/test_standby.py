"""A primary and its asynchronous standby, which is promoted: what doctor reports before, and who notices it."""

from collections.abc import Iterator
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.support.stack import Stack, StackMaker, eventually
from tests.support.standby import Standby, url_of_both


@pytest.fixture
def promotable(make_stack: StackMaker) -> Iterator[tuple[Stack, Standby]]:
    """A stack with servers of its own, whose processes know both hosts."""
    stack = make_stack(own_servers=True, env={"WAKEFUL_SAFETY_LOOK": "1s"})
    primary = stack.servers.postgres
    assert primary is not None
    home = primary.place.parent / "standby"
    with Standby(primary, home) as standby:
        database = urlsplit(stack.database_url).path[1:]
        stack.database_url = stack.env["DATABASE_URL"] = url_of_both(primary, standby, database)
        stack.database_url += "&target_session_attrs=read-write"
        eventually(standby.is_streaming)
        yield stack, standby


@pytest.mark.chaos
def test_a_promoted_standby_is_noticed_and_workers_begin_again(promotable: tuple[Stack, Standby]) -> None:
    stack, standby = promotable
    assert_an_ordinary_role_may_ask_for_the_timeline(stack)
    dispatcher, worker = stack.start("dispatcher"), stack.start("worker")
    eventually(lambda: stack.query("SELECT identity FROM runs_primary"))
    output = stack.manage("doctor", check=False).stdout
    assert "every standby streams asynchronously" in output
    before = stack.query("SELECT id FROM runs_worker WHERE kind = 'worker' AND stopped_at IS NULL")

    assert stack.servers.postgres
    stack.servers.postgres.kill()
    standby.promote()

    noticed = eventually(lambda: stack.query("SELECT * FROM runs_primary WHERE previous <> ''"))[0]
    assert noticed["previous"].split("/")[0] == noticed["identity"].split("/")[0]
    assert (noticed["previous"][-1], noticed["identity"][-1]) == ("1", "2")
    assert noticed["known_until"] < noticed["noticed_at"]
    closed = "SELECT stopped_reason FROM runs_worker WHERE id = %s AND stopped_at IS NOT NULL"
    assert eventually(lambda: stack.query(closed, before[0]["id"]))[0]["stopped_reason"] == "failover"
    fresh = "SELECT 1 FROM runs_worker WHERE kind = 'worker' AND stopped_at IS NULL AND id <> %s"
    eventually(lambda: stack.query(fresh, before[0]["id"]))
    assert dispatcher.is_alive() and worker.is_alive()
    assert "PostgreSQL failed over" in stack.manage("doctor", check=False).stdout
    eventually(lambda: stack.query("SELECT 1 FROM runs_alarm WHERE name = 'failover'"))


def assert_an_ordinary_role_may_ask_for_the_timeline(stack: Stack) -> None:
    with psycopg.connect(stack.database_url, autocommit=True) as session:
        session.execute("CREATE ROLE ordinary")
        session.execute("SET ROLE ordinary")
        query = "SELECT runs_timeline(), runs_primary_identity()"
        timeline, identity = session.execute(query).fetchone() or ("", "")
        assert (timeline, identity.endswith("/00000001")) == ("00000001", True)

        session.execute("RESET ROLE")
        session.execute("REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM public")
        session.execute("SET ROLE ordinary")
        assert session.execute(query).fetchone() == ("", "")

        session.execute("RESET ROLE")
        session.execute("GRANT EXECUTE ON FUNCTION pg_current_wal_lsn() TO public")
