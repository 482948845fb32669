"""Nothing that migrations make is forgotten when Wakeful is removed; `tests/integration/test_leaving.py` removes it."""

import sys
from io import StringIO
from typing import ClassVar

import pytest
import redis
from django.apps import apps
from django.core.management import CommandError, call_command
from pytest_django import Settings

from config.installation import removal
from config.installation.removal import DEADLINES, SEQUENCES, TABLES, delete_keys, keys
from runs.db.sql import execute, fetch
from tests.support.servers import TestServers

WITHOUT_OWNER = """
SELECT relname FROM pg_class relation WHERE relkind IN ('r', 'p', 'v', 'm', 'S')
  AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
  AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = relation.oid AND classid = 'pg_class'::regclass AND deptype IN ('a', 'i', 'e')
    AND relation.relkind = 'S')
"""


@pytest.mark.django_db
def test_each_relation_is_of_a_model_or_is_listed() -> None:
    of_models = {model._meta.db_table for model in apps.get_models(True, True)}
    there = {name for (name,) in fetch(WITHOUT_OWNER)}

    assert there - of_models - {"django_migrations"} == {*TABLES, *SEQUENCES}


@pytest.mark.django_db
def test_what_others_have_made_of_it_is_named_and_keeps_it() -> None:
    execute("CREATE VIEW billing_runs AS SELECT count(*) FROM runs_run")
    execute("CREATE TABLE billing_note (event_id uuid DEFAULT triggers_uuid7(), run_id uuid REFERENCES runs_run (id))")

    for choice in ({"yes": True}, {"dry_run": True}):
        with pytest.raises(CommandError) as refused:
            call_command("uninstall", **choice)
        assert "constraint billing_note_run_id_fkey on table billing_note" in str(refused.value)
        assert "default value for column event_id of table billing_note" in str(refused.value)
        assert "view billing_runs" in str(refused.value)
    assert fetch("SELECT to_regclass('runs_run')") != [(None,)]


@pytest.mark.django_db
def test_users_may_be_in_tables_of_any_name() -> None:
    execute('CREATE TABLE "Member_groups" (group_id int REFERENCES auth_group (id))')
    execute('CREATE TABLE "Member permissions" (permission_id int REFERENCES auth_permission (id))')
    said = StringIO()

    call_command("uninstall", dry_run=True, stdout=said)

    assert "would remove the table runs_run" in said.getvalue()
    assert "rows of django_migrations" in said.getvalue()


@pytest.mark.django_db
def test_tables_of_packages_that_the_project_has_are_not_removed(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Project:
        INSTALLED_APPS: ClassVar = ["django.contrib.auth.apps.AuthConfig", "django.contrib.contenttypes", "orders"]

    monkeypatch.setitem(sys.modules, "shop.settings", Project)
    settings.WAKEFUL_PROJECT = "shop.settings"
    said = StringIO()

    with pytest.raises(CommandError, match="shop.settings has auth among its apps"):
        call_command("uninstall", yes=True, also=["django_celery_results", "auth"])
    call_command("uninstall", dry_run=True, stdout=said)

    assert fetch("SELECT to_regclass('auth_user')") != [(None,)]
    assert "left the tables of auth, which shop.settings has, too\n" in said.getvalue()
    assert "left the tables of django_celery_results; `--also django_celery_results` removes them" in said.getvalue()


@pytest.mark.django_db
def test_of_what_programs_have_together_in_redis_each_keeps_its_own(
    servers: TestServers, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"{servers.redis_url.rpartition('/')[0]}/9"
    monkeypatch.setattr(removal, "redis_client", lambda: redis.Redis.from_url(url))
    with redis.Redis.from_url(url) as client:
        client.flushdb()
        client.set("_kombu.binding.wakeful", "1")
        client.zadd(DEADLINES, {"wakeful.pidbox": 1, "celery.pidbox": 2})
        found = keys()
        delete_keys(found)
        assert (found, client.zrange(DEADLINES, 0, -1)) == (["_kombu.binding.wakeful"], [b"celery.pidbox"])

        client.delete(DEADLINES)
        client.zadd(DEADLINES, {"wakeful.pidbox": 1, "reply.wakeful.pidbox": 2})
        assert keys() == [DEADLINES]
        delete_keys(keys())
        assert client.keys("*") == []
