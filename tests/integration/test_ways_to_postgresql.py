"""PostgreSQL is reached through PgBouncer, and with TLS that is verified."""

import time
from pathlib import Path

import pytest

from tests.integration.protocol import emit, in_status
from tests.integration.test_brokers_of_celery import assert_each_once, load
from tests.support.certificates import Authority
from tests.support.pooler import pgbouncer
from tests.support.stack import SHOP, Stack, StackMaker, prepare
from tests.support.tls_postgres import tls_postgres

pytestmark = [pytest.mark.chaos, pytest.mark.long]

ENCRYPTED = """
SELECT bool_and(ssl) AS "all" FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE starts_with(application_name, 'wakeful')
"""


def begin(stack: Stack) -> None:
    stack.up(workers=2)
    in_status(stack, emit(stack, "effect.warm", "warm"), "succeeded")


def test_a_pooler_in_session_mode_carries_everything(tmp_path: Path, make_stack: StackMaker) -> None:
    stack = make_stack(env=SHOP, agents=True)
    with pgbouncer(tmp_path, stack.database_url, "session") as url:
        stack.env["DATABASE_URL"] = url
        begin(stack)

        with load(stack) as recorded:
            time.sleep(3)
            victim = stack.processes[-1]
            victim.kill()  # its runs are taken over: the sessions of a lost run are ended through the pooler
            time.sleep(5)

        assert_each_once(stack, recorded)
        assert "transaction mode" not in stack.manage("doctor", check=False).stdout
        stack.stop()


def test_a_pooler_in_transaction_mode_is_named_by_doctor(tmp_path: Path, make_stack: StackMaker) -> None:
    stack = make_stack(env=SHOP, agents=True)
    with pgbouncer(tmp_path, stack.database_url, "transaction") as url:
        found = stack.manage("doctor", check=False, env={"DATABASE_URL": url})

    assert found.returncode == 1
    assert "session" in found.stdout


def test_a_server_whose_certificate_is_verified_carries_everything(tmp_path: Path, make_stack: StackMaker) -> None:
    authority = Authority(tmp_path)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    stack = make_stack(env=SHOP)
    with tls_postgres(tmp_path, authority) as url:
        stack.database_url = stack.env["DATABASE_URL"] = f"{url}?sslmode=verify-full&sslrootcert={authority.path}"
        prepare(stack.env, agents=True)
        begin(stack)

        with load(stack) as recorded:
            time.sleep(3)

        assert_each_once(stack, recorded)
        assert stack.query(ENCRYPTED) == [{"all": True}]
        unknown = {"DATABASE_URL": f"{url}?sslmode=verify-full&sslrootcert={other.path}"}
        # Of another authority of the same name OpenSSL says that the signature is wrong, of any other that it is not known.
        assert "SSL error" in stack.manage("doctor", check=False, env=unknown).stdout
        stack.stop()
