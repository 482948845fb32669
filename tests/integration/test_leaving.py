"""Wakeful leaves a project's database as it found it, and fails no statement of the project's while it is gone, or half there."""

import re
import subprocess
from difflib import unified_diff
from pathlib import Path

import pytest
import redis

from config.installation.removal import DEADLINES
from config.stack.embedded.binaries import find_postgres
from tests.support.beside import Shop
from tests.support.stack import SHOP, Stack, StackMaker, eventually

TABLE = """
CREATE TABLE billing_bill (id int PRIMARY KEY, amount int);
INSERT INTO django_celery_beat_intervalschedule (every, period) VALUES (7, 'days');
INSERT INTO django_celery_beat_periodictask (name, task, args, kwargs, enabled, total_run_count, date_changed, description, one_off,
  headers, interval_id) SELECT 'theirs', 'billing.tasks.charge', '[]', '{}', true, 0, now(), '', false, '{}', id
  FROM django_celery_beat_intervalschedule
"""
# A number that a sequence gave to a row that is gone is not given again; and their Beat was to read its tasks again.
UNEQUAL = re.compile(r"^(SELECT pg_catalog\.setval|1\t\d{4}-).*$|^\\(un)?restrict .*$", re.MULTILINE)


def dumped(stack: Stack) -> str:
    [version] = stack.query("SELECT current_setting('server_version_num')::int / 10000 AS major")
    program = find_postgres(version["major"]).bin / "pg_dump"
    dump = subprocess.run([program, "--no-owner", stack.database_url], capture_output=True, text=True, check=True)
    return "\n".join(line for line in UNEQUAL.sub("", dump.stdout).splitlines() if line)


def a_project(make_stack: StackMaker, folder: Path) -> tuple[Stack, Shop]:
    """A database with the tables of a project, and none of Wakeful's."""
    stack = make_stack(env={**SHOP, "WAKEFUL_APPS": "", "WAKEFUL_ADOPT_PERIODIC_TASKS": "false"})
    stack.query("DROP SCHEMA public CASCADE")
    stack.query("CREATE SCHEMA public")
    shop = Shop(folder / "shop", stack)
    shop.python("manage.py", "migrate", "-v0")
    for statement in TABLE.split(";"):
        stack.query(statement)
    return stack, shop


def watch(stack: Stack) -> None:
    stack.query(
        "INSERT INTO triggers_source (id, slug, kind, settings, trusted, enabled, created_at) "
        "VALUES (gen_random_uuid(), 'bills', 'table', '{\"table\": \"billing_bill\"}', true, true, now())"
    )
    stack.manage("migrate", "-v0")  # it keeps the triggers
    assert stack.query("SELECT 1 FROM pg_trigger WHERE tgrelid = 'billing_bill'::regclass")


@pytest.mark.chaos
def test_a_database_is_the_same_before_and_after(make_stack: StackMaker, tmp_path: Path) -> None:
    stack, _ = a_project(make_stack, tmp_path)
    before = dumped(stack)
    also = [word for app in ("admin", "auth", "django_celery_results", "sessions") for word in ("--also", app)]

    stack.manage("migrate", "-v0")
    watch(stack)
    stack.up()
    stack.query("INSERT INTO billing_bill VALUES (1, 10)")
    eventually(
        lambda: stack.query(
            "SELECT 1 FROM triggers_event WHERE type = 'db.public.billing_bill.insert' AND dispatched_at IS NOT NULL"
        )
    )
    eventually(lambda: stack.query("SELECT 1 FROM django_celery_beat_periodictask WHERE task = 'wakeful.prune'"))
    refused = stack.manage("uninstall", "--yes", check=False)
    assert "Stop every process first" in refused.stderr
    for process in stack.processes:
        assert process.stop() == 0
    stack.query("DELETE FROM billing_bill")

    with_it = dumped(stack)
    said = stack.manage("uninstall", "--dry-run", *also).stdout
    assert dumped(stack) == with_it
    assert "would remove the trigger wakeful_change_" in said
    assert "left the tables of contenttypes" in said
    done = stack.manage("uninstall", "--yes", *also).stdout
    assert done == said.replace("would remove", "removed")

    differs = list(unified_diff(before.splitlines(), dumped(stack).splitlines(), n=0))
    assert not differs, "\n".join(differs)
    with redis.Redis.from_url(stack.redis_url) as client:
        assert client.keys("*wakeful*") == client.keys("*runs.*") == []
        assert not [name for name in client.zrange(DEADLINES, 0, -1) if b"wakeful" in name]


@pytest.mark.chaos
@pytest.mark.parametrize(
    "harm",
    [
        "DROP TABLE triggers_source CASCADE",
        "DROP TABLE triggers_event CASCADE",
        "DROP FUNCTION triggers_row_as_json(record, integer)",
        "DROP FUNCTION triggers_uuid7() CASCADE",
        "migrate triggers zero",
    ],
)
def test_the_statements_of_the_owner_of_a_watched_table_go_through(
    make_stack: StackMaker, tmp_path: Path, harm: str
) -> None:
    stack, shop = a_project(make_stack, tmp_path)
    stack.manage("migrate", "-v0")
    watch(stack)
    stack.query("INSERT INTO billing_bill VALUES (1, 10)")
    assert stack.query("SELECT 1 FROM triggers_event WHERE type = 'db.public.billing_bill.insert'")

    if harm.startswith("migrate"):
        stack.manage(*harm.split())
        assert not stack.query("SELECT 1 FROM pg_trigger WHERE tgrelid = 'billing_bill'::regclass")
        assert not stack.query("SELECT 1 FROM pg_proc WHERE proname ~ '^(triggers_|wakeful_)'")
    else:
        stack.query(harm)

    stack.query("INSERT INTO billing_bill VALUES (2, 20)")
    stack.query("UPDATE billing_bill SET amount = 30")
    stack.query("DELETE FROM billing_bill WHERE id = 1")
    stack.query("TRUNCATE billing_bill")
    stack.query("UPDATE django_celery_beat_periodictask SET enabled = false WHERE name = 'theirs'")
    if "FUNCTION" in harm:
        assert "is missing" in stack.manage("doctor", check=False).stdout
        stack.manage("migrate", "-v0")
        stack.query("INSERT INTO billing_bill VALUES (3, 30)")
        assert (
            stack.query("SELECT count(*) FROM triggers_event WHERE type = 'db.public.billing_bill.insert'")[0]["count"]
            == 2
        )
