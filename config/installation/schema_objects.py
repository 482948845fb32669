"""Functions, triggers and indexes of the database, compared with those that this version's migrations make.

`django_migrations` says which migrations ran, not what is there: a dump that was restored in part, a migration that was applied in an
earlier wording, or a hand in psql leaves a database that looks migrated and fails the statements of those who write to it.

`schema_objects.json` holds what a freshly migrated database has; a test compares the two, and `WRITE=1 pytest
tests/config/installation/test_schema_objects.py` writes it. It is read by `migrate`, `doctor` and `uninstall` alone.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from django.apps import apps
from django.db import connection, transaction

from runs.db.schema_check import needed_migrations
from runs.db.sql import fetch

FILE = Path(__file__).with_suffix(".json")
APPS = ("agents", "runs", "triggers", "config")
CAPTURE = "wakeful_change_"  # of watched tables: `triggers.sources.databases.tables` keeps these
SCHEMA, LITERAL = "{schema}", "{'schema'}"  # in the file, instead of a schema's name, and of the same as a literal
NAMES = "SELECT quote_ident(current_schema()), quote_literal(current_schema())"
HERE = "(SELECT oid FROM pg_namespace WHERE nspname = current_schema())"

# By name with the types of the arguments; a function of an extension is none of ours. Of those that run with the rights of their owner
# also where they look for names, and whether everyone may call them: a dump may be restored without rights.
FUNCTIONS = f"""
SELECT function.proname || '(' || pg_get_function_identity_arguments(function.oid) || ')',
  concat_ws(E'\\n', prosrc, CASE WHEN prosecdef THEN 'SECURITY DEFINER' END, array_to_string(proconfig, '; '),
    CASE WHEN prosecdef AND is_open THEN 'PUBLIC may call it' END),
  pg_get_functiondef(function.oid) || CASE WHEN prosecdef AND NOT is_open
    THEN '; REVOKE ALL ON FUNCTION ' || function.oid::regprocedure || ' FROM PUBLIC' ELSE '' END
FROM pg_proc function, has_function_privilege('public', function.oid, 'EXECUTE') is_open
WHERE pronamespace = {HERE} AND prokind = 'f' AND NOT starts_with(proname, '{CAPTURE}')
  AND NOT EXISTS (SELECT FROM pg_depend WHERE objid = function.oid AND classid = 'pg_proc'::regclass AND deptype = 'e')
ORDER BY 1
"""  # noqa: S608  (our own parts)
TRIGGERS = f"""
SELECT relation.relname || '.' || tgname, function.proname || ' ' || tgenabled::text, pg_get_triggerdef(one.oid)
FROM pg_trigger one JOIN pg_class relation ON relation.oid = tgrelid JOIN pg_proc function ON function.oid = tgfoid
WHERE NOT tgisinternal AND relation.relnamespace = {HERE} AND function.pronamespace = {HERE}
  AND NOT starts_with(function.proname, '{CAPTURE}')
ORDER BY 1
"""  # noqa: S608
INDEXES = f"""
SELECT tables.relname || '.' || class.relname, CASE WHEN indisvalid THEN 'valid' ELSE 'not valid' END, pg_get_indexdef(indexrelid)
FROM pg_index JOIN pg_class class ON class.oid = indexrelid JOIN pg_class tables ON tables.oid = indrelid
WHERE class.relnamespace = {HERE} AND tables.relkind = 'r' AND tables.relname = ANY(%s::text[])
ORDER BY 1
"""  # noqa: S608
KINDS: Mapping[str, str] = {"function": FUNCTIONS, "trigger": TRIGGERS, "index": INDEXES}

Objects = Mapping[str, Mapping[str, tuple[str, str]]]  # kind → name → what is compared, the statement that makes it


@dataclass(frozen=True, kw_only=True)
class Difference:
    kind: str
    name: str
    problem: str  # is missing, differs, …
    statement: str  # makes it as it should be

    def __str__(self) -> str:
        return f"{self.kind} {self.name} {self.problem}"


def tables() -> list[str]:
    """The tables of Wakeful's apps, those of many-to-many fields included."""
    return sorted(model._meta.db_table for app in APPS for model in apps.get_app_config(app).get_models(True, True))


def present() -> Objects:
    """What the database has."""
    [(schema, literal)] = fetch(NAMES)
    return {
        kind: {
            name: (
                compared.replace(f", {schema}, pg_temp", f", {SCHEMA}, pg_temp"),
                made.replace(f" {schema}.", f" {SCHEMA}.").replace(
                    f", {literal}, 'pg_temp'", f", {LITERAL}, 'pg_temp'"
                ),
            )
            for name, compared, made in fetch(statement, [tables()] if kind == "index" else ())
        }
        for kind, statement in KINDS.items()
    }


@cache
def expected() -> Objects:
    """What a freshly migrated database has."""
    return {
        kind: {name: (compared, made) for name, (compared, made) in objects.items()}
        for kind, objects in (json.loads(FILE.read_text()) if FILE.exists() else {}).items()
    }


def differences() -> list[Difference]:
    """What is missing, or is not as this version makes it; nothing where a newer version has migrated. Two or three statements on the
    catalog."""
    if is_newer():
        return []
    return list(_differences(present()))


def is_newer() -> bool:
    """Has a newer version migrated the database?"""
    known = set(needed_migrations())
    return any(
        one not in known for one in fetch("SELECT app, name FROM django_migrations WHERE app = ANY(%s)", [list(APPS)])
    )


def _differences(there: Objects) -> Iterator[Difference]:
    for kind in KINDS:
        for name, (compared, statement) in expected().get(kind, {}).items():
            found = there[kind].get(name)
            if found is None:
                yield Difference(kind=kind, name=name, problem="is missing", statement=statement)
            elif found[0] != compared:
                yield Difference(kind=kind, name=name, problem="differs", statement=statement)


def repair(found: list[Difference]) -> None:
    """Make them as they should be: functions first, which triggers and indexes call. Raises what the database raises."""
    [(schema, literal)] = fetch(NAMES)
    order = list(KINDS)
    with transaction.atomic(), connection.cursor() as cursor:
        for one in sorted(found, key=lambda one: order.index(one.kind)):
            table, _, name = one.name.partition(".")
            if one.problem == "differs" and one.kind == "trigger":
                cursor.execute(f'DROP TRIGGER "{name}" ON {schema}."{table}"')
            elif one.problem == "differs" and one.kind == "index":
                cursor.execute(f'DROP INDEX {schema}."{name}"')
            cursor.execute(one.statement.replace(SCHEMA, schema).replace(LITERAL, literal))
