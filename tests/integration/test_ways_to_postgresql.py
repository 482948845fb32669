"""PostgreSQL is reached through PgBouncer, and with TLS that is verified."""

import time
from pathlib import Path

import pytest

from tests.integration.protocol import emit, in_status
from tests.integration.test_brokers_of_celery import assert_each_once, load
from tests.support.certificates import Authority
from tests.support.pooler import pgbouncer
from tests.support.stack import SHOP, Stack, StackMaker

pytestmark = pytest.mark.chaos


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
    stack = make_stack(env=SHOP, agents=True, own_servers=True)
    authority, postgres = Authority(tmp_path), stack.servers.postgres
    assert postgres
    signed = authority.sign("server", "127.0.0.1")
    postgres.kill()
    postgres.settings |= {"ssl": "on", "ssl_cert_file": str(signed.certificate), "ssl_key_file": str(signed.key)}
    try:
        postgres.start()
    except Exception as error:
        pytest.skip(f"this PostgreSQL has no TLS: {error}")
    stack.env["DATABASE_URL"] += f"?sslmode=verify-full&sslrootcert={authority.path}"
    begin(stack)

    with load(stack) as recorded:
        time.sleep(3)

    assert_each_once(stack, recorded)
    encrypted = "SELECT bool_and(ssl) AS all FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name LIKE 'wakeful%'"
    assert stack.query(encrypted) == [{"all": True}]
    (tmp_path / "other").mkdir()
    unknown = {
        "DATABASE_URL": f"{stack.database_url}?sslmode=verify-full&sslrootcert={Authority(tmp_path / 'other').path}"
    }
    assert "certificate verify failed" in stack.manage("doctor", check=False, env=unknown).stdout
    stack.stop()
