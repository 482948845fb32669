"""Before `migrate` a web process refuses what it could not keep; `migrate` gives way to what goes on."""

import subprocess
import sys

import psycopg
import pytest

from tests.support.hooks import make_source, signed_headers
from tests.support.stack import PATIENCE, ROOT, Stack, eventually

pytestmark = [pytest.mark.sampled, pytest.mark.long]


def test_a_web_process_before_migrate_answers_503_and_accepts_after(stack: Stack) -> None:
    with stack.orm():
        make_source()
    newest = "DELETE FROM django_migrations WHERE app = 'triggers' AND name LIKE '0002%%' RETURNING app, name, applied"
    [row] = stack.query(newest)
    stack.start("web").wait_ready()

    refused = stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}"))
    not_ready = stack.request("GET", "/health/ready")
    stack.query("INSERT INTO django_migrations (app, name, applied) VALUES (%s, %s, %s)", *row.values())
    eventually(
        lambda: stack.request("POST", "/hooks/shop/", body=b"{}", headers=signed_headers(b"{}")).status in (200, 202)
    )

    assert (refused.status, refused.headers["retry-after"]) == (503, "5")
    assert "triggers.0002" in refused.body.decode() and "manage.py migrate" in refused.body.decode()
    assert not_ready.json()["migrations"] == "pending"
    assert stack.query("SELECT count(*) AS n FROM triggers_event") == [{"n": 1}]


@pytest.mark.chaos
def test_a_migration_blocked_by_a_reader_blocks_no_other_and_is_retried(stack: Stack) -> None:
    log = stack.folder / "migrate.log"
    back = [sys.executable, "manage.py", "migrate", "config", "0001"]
    with psycopg.connect(stack.database_url) as dump, log.open("wb") as output:
        dump.execute("LOCK config_loginfailure IN ACCESS SHARE MODE")
        migrate = subprocess.Popen(back, env=stack.env, cwd=ROOT, stdout=output, stderr=output)
        eventually(lambda: log.read_text().count("is tried again") == 2)
        assert stack.query("SELECT count(*) AS n FROM config_loginfailure") == [{"n": 0}]
        assert migrate.poll() is None
        dump.rollback()

        assert migrate.wait(PATIENCE) == 0

    assert "Unapplying config.0002_login_failures... OK" in log.read_text()
    assert "Applying config.0002_login_failures... OK" in stack.manage("migrate").stdout
