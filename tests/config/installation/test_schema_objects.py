"""Functions, triggers and indexes are those of the code, whatever `django_migrations` says; and a landed migration is never edited."""

import hashlib
import json
import os
from pathlib import Path

import pytest
from django.core.management import call_command

from config.installation import schema_objects
from config.installation.schema_objects import FILE, Difference, differences, present, repair
from runs.db.sql import execute, fetch

ROOT = Path(__file__).parents[3]
LANDED = Path(__file__).with_name("landed_migrations.txt")
WRITES = bool(os.environ.get("WRITE"))


@pytest.mark.django_db
def test_the_file_holds_what_the_migrations_make() -> None:
    made = {
        kind: {name: list(one) for name, one in objects.items() if not is_of_an_app(name)}
        for kind, objects in present().items()
    }
    if WRITES:
        FILE.write_text(json.dumps(made, indent=1, sort_keys=True) + "\n")
        schema_objects.expected.cache_clear()
    kept = json.loads(FILE.read_text())

    # The words of a definition are this server's; what is compared is the same on each version.
    assert {kind: {name: one[0] for name, one in found.items()} for kind, found in made.items()} == {
        kind: {name: one[0] for name, one in found.items()} for kind, found in kept.items()
    }, "WRITE=1 pytest tests/config/installation/test_schema_objects.py"
    assert differences() == []


def is_of_an_app(name: str) -> bool:
    """Of agents.library and of the apps that tests bring."""
    return name.startswith(("library_", "shop_", "lab_"))


@pytest.mark.django_db
def test_what_an_earlier_wording_of_a_migration_left_is_named_and_repaired() -> None:
    execute("DROP FUNCTION triggers_row_as_json(record, integer)")
    execute("DROP INDEX schedule_left_alone")
    execute("DROP TRIGGER schedule_made ON django_celery_beat_periodictask")
    execute("CREATE OR REPLACE FUNCTION triggers_editor() RETURNS text LANGUAGE sql STABLE AS $$ SELECT 'me' $$")
    found = differences()

    assert [str(one) for one in found] == [
        "function triggers_editor() differs",
        "function triggers_row_as_json(wakeful_row record, most integer) is missing",
        "trigger django_celery_beat_periodictask.schedule_made is missing",
        "index triggers_schedule.schedule_left_alone is missing",
    ]
    repair(found)
    assert differences() == []


@pytest.mark.django_db
def test_what_may_run_with_the_rights_of_wakeful_is_repaired_with_its_path_and_its_rights() -> None:
    execute('CREATE SCHEMA "My Wakeful"')
    for name in ("wakeful_emit", "triggers_nudge_at_commit"):
        execute(f"ALTER FUNCTION {name} SET search_path = public")
        execute(f"GRANT EXECUTE ON FUNCTION {name} TO PUBLIC")
    assert [one.name.partition("(")[0] for one in differences()] == ["triggers_nudge_at_commit", "wakeful_emit"]
    repair(differences())
    assert differences() == []

    # A function that is missing in a schema of its own looks for its tables there, and is not for everyone either.
    name = "wakeful_emit(type text, data jsonb, subject text, id text)"
    compared, statement = schema_objects.expected()["function"][name]
    execute('SET LOCAL search_path = "My Wakeful"')
    repair([Difference(kind="function", name=name, problem="is missing", statement=statement)])
    assert fetch(
        "SELECT proconfig, has_function_privilege('public', oid, 'EXECUTE') FROM pg_proc WHERE oid = 'wakeful_emit'::regproc"
    ) == [(['search_path=pg_catalog, "My Wakeful", pg_temp'], False)]
    assert present()["function"][name][0] == compared


@pytest.mark.django_db
def test_nothing_is_repaired_where_a_newer_version_has_migrated() -> None:
    execute("DROP FUNCTION triggers_row_as_json(record, integer)")
    execute("INSERT INTO django_migrations (app, name, applied) VALUES ('triggers', '9999_newer', now())")
    assert differences() == []


@pytest.mark.django_db
def test_migrate_repairs(capsys: pytest.CaptureFixture[str]) -> None:
    execute("DROP FUNCTION triggers_uuid7()")
    call_command("migrate", verbosity=0)
    assert fetch("SELECT to_regproc('triggers_uuid7')") != [(None,)]
    assert "function triggers_uuid7() is missing" in capsys.readouterr().out


def test_a_landed_migration_is_never_edited() -> None:
    """A database that has applied it would lack the change. Its docstring counts, too. A new one is added to the list by
    `WRITE=1 pytest tests/config/installation/test_schema_objects.py`, which changes no line of those that are there."""
    now = {
        str(file.relative_to(ROOT)): hashlib.sha256(file.read_bytes()).hexdigest()
        for app in schema_objects.APPS
        for file in (ROOT / app / "migrations").glob("[0-9]*.py")
    }
    landed = dict(line.split() for line in LANDED.read_text().splitlines()) if LANDED.exists() else {}
    edited = [name for name, digest in landed.items() if now.get(name) != digest]
    if WRITES:
        landed = {**now, **landed}
        LANDED.write_text("".join(f"{name} {digest}\n" for name, digest in sorted(landed.items())))

    assert not edited, "Write a new migration instead."
    assert now.keys() == landed.keys(), "WRITE=1 pytest tests/config/installation/test_schema_objects.py"
