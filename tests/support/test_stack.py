"""The processes of a stack, and the session that it keeps for its queries."""

from pathlib import Path

import psutil
import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from config.stack.embedded import Servers
from config.stack.nursery import CAN_FORK, Forked
from tests.support.examples import some_cases
from tests.support.stack import Stack, StackMaker


@pytest.fixture(scope="module")
def stack(make_shared_stack: StackMaker) -> Stack:
    return make_shared_stack()


@pytest.mark.parametrize("kind", some_cases(["web", "beat", "dispatcher", "sources", "worker"]))
@pytest.mark.skipif(not CAN_FORK, reason="programs are forked on Linux alone")
def test_a_process_is_forked_unless_a_test_wants_it_by_itself(stack: Stack, kind: str) -> None:
    process = stack.start(kind)

    assert isinstance(process._popen, Forked)
    # Its command line stands where that of the process that forks had room left. What is executed has no such room.
    assert psutil.Process(process.pid).cmdline()[-1] == ""


@pytest.mark.django_db
def test_a_failover_leaves_no_session_open(tmp_path: Path) -> None:
    at = connection.settings_dict
    old, new = (
        make_conninfo(
            dbname=at["NAME"],
            host=at["HOST"],
            port=at["PORT"],
            user=at["USER"],
            password=at["PASSWORD"],
            application_name=server,
        )
        for server in ("old", "new")
    )
    nothing = Servers(postgres=None, valkey=None)
    stack = Stack(tmp_path, database_url=old, redis_url="", env={}, servers=nothing, blocker=None)
    stack.query("SELECT 1")
    session = stack._session

    stack.database_url = new
    [row] = stack.query("SELECT current_setting('application_name') AS server")
    stack.stop()

    assert row["server"] == "new"
    assert session and session.closed
