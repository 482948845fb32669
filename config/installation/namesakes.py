"""Tables and applied migrations that have the names of Wakeful's, and are a project's: of its own app `runs`, `agents`, `triggers` or
`config`, which is left out of Wakeful's processes, but not of the schema.

Django knows migrations by label and name alone, so `runs.0001_initial` of the project counts as Wakeful's: `migrate` would go on from
there, and `uninstall` would drop the project's table `runs_run`.
"""

from collections.abc import Iterator

from django.core.management.base import CommandError
from django.db.migrations import CreateModel
from django.db.migrations.loader import MigrationLoader

from config.installation.removal import exists, tables_of
from config.installation.schema_objects import APPS, expected
from runs.db.sql import fetch

THERE = """
SELECT relname FROM pg_class WHERE relname = ANY(%s::text[])
  AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) ORDER BY 1
"""
# A table that is renamed keeps the names of its indexes.
INDEXES_OF_OTHERS = """
SELECT class.relname, tables.relname
FROM pg_index JOIN pg_class class ON class.oid = indexrelid JOIN pg_class tables ON tables.oid = indrelid
WHERE class.relname = ANY(%s::text[]) AND tables.relname <> ALL(%s::text[])
  AND class.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema()) ORDER BY 1
"""


def refuse_taken_indexes(and_so: str) -> None:
    """CommandError: an index of another table has the name of one of Wakeful's."""
    ours = [name.rpartition(".")[2] for name in expected().get("index", {})]
    if found := fetch(INDEXES_OF_OTHERS, [ours, tables_of(APPS)]):
        named = ", ".join(f"{index} of {table}" for index, table in found)
        rename = "; ".join(
            f"ALTER INDEX {index} RENAME TO {table}_{number}" for number, (index, table) in enumerate(found, 1)
        )
        raise CommandError(
            f"In this schema indexes of other tables have names of Wakeful's: {named}. Rename them, such as by {rename}. {and_so}"
        )


def refuse_namesakes(and_so: str) -> None:
    """CommandError: a label of Wakeful's is the project's in this schema."""
    if found := list(namesakes()):
        raise CommandError(
            f"In this schema there are {', '.join(found)}, which are not Wakeful's but those of an app with the same label. Wakeful needs "
            f"a schema of its own there: see docs/beside-your-project.md#an-app-with-a-label-of-wakefuls. {and_so}"
        )


def namesakes() -> Iterator[str]:
    disk = MigrationLoader(None).disk_migrations
    for label in APPS:
        first = min(name for app, name in disk if app == label)
        operations = disk[label, first].operations
        made = {f"{label}_{one.name_lower}" for one in operations if isinstance(one, CreateModel)}
        yield from _namesakes(label, first, made)


def _namesakes(label: str, first: str, made: set[str]) -> Iterator[str]:
    """`made`: the tables of the first migration. With most of them it is Wakeful's, even if a hand has dropped some."""
    there = [name for (name,) in fetch(THERE, [tables_of([label])])]
    applied = (
        [name for (name,) in fetch("SELECT name FROM django_migrations WHERE app = %s ORDER BY 1", [label])]
        if exists("django_migrations")
        else []
    )
    may_be_ours = first in applied or (made and not applied)
    if not (may_be_ours and 2 * len(made.intersection(there)) >= len(made)):
        yield from (f"the table {name}" for name in there)
        yield from (f"the migration {label}.{name}" for name in applied)
