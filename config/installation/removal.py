"""What Wakeful has made in a database and in Redis, and its removal. See `manage.py uninstall`.

Tables of the packages that it uses (Django's, django-celery-beat's) may be a project's, so they stay unless they are named; of them only
Wakeful's own rows go. Everything happens in one transaction, with a short wait for locks: it is all gone, or nothing is.
"""

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connection

from config.beside import app_of
from config.installation.schema_objects import APPS, CAPTURE, expected
from runs.db.sql import execute, fetch
from runs.network.broker import redis_client
from triggers.schedules.own_tasks import FIRE_TASK, MAINTENANCE

OF_OTHERS = ("admin", "auth", "contenttypes", "django_celery_beat", "django_celery_results", "sessions")
# Those of no model and of no column.
TABLES = ("runs_uncountedend", "triggers_rulesversion")
SEQUENCES = (
    "runs_ends_are_counted_until",
    "runs_run_seq",
    "triggers_listens_until",
    "triggers_looks_until",
    "triggers_seq",
)
LIBRARY = "agents.library"
PATIENCE = "SET LOCAL lock_timeout = '5s'"
RELATIONS = """
SELECT relname, relkind FROM pg_class WHERE relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
  AND relname = ANY(%s::text[]) AND relkind IN ('r', 'p', 'v') ORDER BY relkind = 'r', relname
"""
FUNCTIONS = f"""
SELECT oid::regprocedure::text FROM pg_proc WHERE prokind = 'f'
  AND pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
  AND (proname = ANY(%s::text[]) OR starts_with(proname, '{CAPTURE}')) ORDER BY 1
"""  # noqa: S608  (our own parts)
TRIGGERS = """
SELECT tgname, tgrelid::regclass::text FROM pg_trigger
WHERE NOT tgisinternal AND tgfoid = %s::regprocedure AND tgrelid::regclass::text <> ALL(%s::text[]) ORDER BY 2, 1
"""
# What DROP … CASCADE would take with it; triggers of Wakeful's functions are on any table.
DEPENDENTS = """
SELECT DISTINCT pg_describe_object(classid, objid, 0) FROM pg_depend
LEFT JOIN pg_rewrite rule ON classid = 'pg_rewrite'::regclass AND rule.oid = objid
LEFT JOIN pg_constraint bound ON classid = 'pg_constraint'::regclass AND bound.oid = objid
LEFT JOIN pg_attrdef given ON classid = 'pg_attrdef'::regclass AND given.oid = objid
WHERE deptype = 'n' AND coalesce(ev_class, conrelid, adrelid) <> ALL(%(relations)s::oid[])
  AND (refclassid = 'pg_class'::regclass AND refobjid = ANY(%(relations)s::oid[])
    OR refclassid = 'pg_proc'::regclass AND refobjid = ANY(%(functions)s::oid[]))
ORDER BY 1
"""
BINDINGS = ("_kombu.binding", "_kombu.binding_permanent")  # keys that kombu makes of an exchange
DEADLINES = "_kombu.binding_deadlines"  # a key for the exchanges of every program on that Redis database
RULES = ("crontab", "interval", "clocked", "solar")
OWN_TASKS = "task = %(fire)s::text OR starts_with(task, %(maintenance)s::text)"
ROLES = ("viewer", "operator", "approver")
GROUPS = """
SELECT one.id, one.name FROM auth_group one WHERE one.name = ANY(%s::text[]) AND EXISTS (
  SELECT FROM auth_group_permissions held JOIN auth_permission permission ON permission.id = permission_id
  JOIN django_content_type type ON type.id = content_type_id
  WHERE held.group_id = one.id GROUP BY held.group_id
  HAVING bool_or(app_label = ANY(%s::text[])) AND bool_and(app_label = ANY(%s::text[])))
"""
NAMES = {"fire": FIRE_TASK, "maintenance": MAINTENANCE}


def is_installed() -> bool:
    return exists("runs_worker")


def exists(table: str) -> bool:
    return fetch("SELECT to_regclass(%s)", [table]) != [(None,)]


def labels(also: Sequence[str] = ()) -> list[str]:
    own = [*APPS, *([apps.get_app_config("library").label] if apps.is_installed(LIBRARY) else [])]
    return [*own, *also]


def tables_of(names: Sequence[str]) -> list[str]:
    return sorted(
        {model._meta.db_table for name in names for model in apps.get_app_config(name).get_models(True, True)}
    )


def remove(also: Sequence[str]) -> Iterator[str]:
    """Remove it; yields what was."""
    execute(PATIENCE)
    names, tables = labels(also), tables_of(labels(also))
    yield from _functions(tables)
    for name, kind in fetch(RELATIONS, [[*tables, *TABLES]]):
        what = "view" if kind == "v" else "table"
        _drop(f'{what.upper()} IF EXISTS "{name}" CASCADE')
        yield f"the {what} {name}"
    for name in SEQUENCES:
        if exists(name):
            _drop(f'SEQUENCE "{name}"')
            yield f"the sequence {name}"
    if exists("django_celery_beat_periodictask"):
        yield from _periodic_tasks()
    yield from _rows(names)


def dependents(also: Sequence[str]) -> list[str]:
    """Views, foreign keys and defaults of others that need what is to be removed."""
    tables = [*tables_of(labels(also)), *TABLES]
    relations = fetch(
        "SELECT name::regclass::oid FROM unnest(%s::text[]) name WHERE to_regclass(name) IS NOT NULL", [tables]
    )
    functions = fetch(
        "SELECT name::regprocedure::oid FROM unnest(%s::text[]) name", [[one for (one,) in _own_functions()]]
    )
    oids = {"relations": [oid for (oid,) in relations], "functions": [oid for (oid,) in functions]}
    return [name for (name,) in fetch(DEPENDENTS, oids)]


def _own_functions() -> list[tuple[Any, ...]]:
    return fetch(FUNCTIONS, [sorted({name.partition("(")[0] for name in expected()["function"]})])


def _functions(tables: Sequence[str]) -> Iterator[str]:
    """With the triggers that call them, on whichever table."""
    for (function,) in _own_functions():
        if not exists_function(function):
            continue  # it went with another
        for trigger, table in fetch(TRIGGERS, [function, list(tables)]):
            yield f"the trigger {trigger} of the table {table}"
        _drop(f"FUNCTION {function} CASCADE")
        yield f"the function {function}"


def exists_function(name: str) -> bool:
    return fetch("SELECT to_regprocedure(%s)", [name]) != [(None,)]


def _drop(what: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute(f"DROP {what}")


def _periodic_tasks() -> Iterator[str]:
    """Wakeful's, with the rules that no other task has."""
    columns = ", ".join(f"{rule}_id" for rule in RULES)
    gone = fetch(f"DELETE FROM django_celery_beat_periodictask WHERE {OWN_TASKS} RETURNING name, {columns}", NAMES)  # noqa: S608
    for name, *_ in gone:
        yield f"the periodic task {name}"
    for number, rule in enumerate(RULES, start=1):
        ids = sorted({row[number] for row in gone if row[number] is not None})
        execute(
            f"DELETE FROM django_celery_beat_{rule}schedule rule WHERE id = ANY(%s::int[]) "  # noqa: S608
            f"AND NOT EXISTS (SELECT FROM django_celery_beat_periodictask WHERE {rule}_id = rule.id)",
            [ids],
        )


def _rows(names: Sequence[str]) -> Iterator[str]:
    """Migrations, permissions and content types."""
    if exists("django_content_type"):
        types = [id for (id,) in fetch("SELECT id FROM django_content_type WHERE app_label = ANY(%s)", [list(names)])]
        if exists("auth_permission"):
            yield from _groups()
            held = "permission_id IN (SELECT id FROM auth_permission WHERE content_type_id = ANY(%s::int[]))"
            for table in _holders():
                execute(f"DELETE FROM {table} WHERE {held}", [types])  # noqa: S608
            count = execute("DELETE FROM auth_permission WHERE content_type_id = ANY(%s::int[])", [types])
            yield f"{count} permissions"
        if exists("django_admin_log"):
            execute("DELETE FROM django_admin_log WHERE content_type_id = ANY(%s::int[])", [types])
        count = execute("DELETE FROM django_content_type WHERE id = ANY(%s::int[])", [types])
        yield f"{count} content types"
    if exists("django_migrations"):
        count = execute("DELETE FROM django_migrations WHERE app = ANY(%s)", [list(names)])
        yield f"{count} rows of django_migrations"


def _groups() -> Iterator[str]:
    """The roles that a migration made, if no account is in them and they may do nothing else."""
    for id, name in fetch(GROUPS, [list(ROLES), list(APPS), [*APPS, "django_celery_beat", "django_celery_results"]]):
        members = [table for table in _holders("auth_group") if table != "auth_group_permissions"]
        if not any(fetch(f"SELECT 1 FROM {table} WHERE group_id = %s LIMIT 1", [id]) for table in members):  # noqa: S608
            execute("DELETE FROM auth_group_permissions WHERE group_id = %s", [id])
            execute("DELETE FROM auth_group WHERE id = %s", [id])
            yield f"the group {name}"


def _holders(of: str = "auth_permission") -> list[str]:
    """The tables that give permissions, or groups, to groups and users, of whichever model; quoted where SQL needs it."""
    found = fetch(
        "SELECT conrelid::regclass::text FROM pg_constraint WHERE contype = 'f' AND confrelid = %s::regclass", [of]
    )
    return [name for (name,) in found]


def used_by_project() -> list[str]:
    """Of the packages whose tables may be removed as well, those that the project has, too: its tables are the same ones."""
    if not settings.WAKEFUL_PROJECT:
        return []
    theirs = {app_of(entry) for entry in import_module(settings.WAKEFUL_PROJECT).INSTALLED_APPS}
    return [name for name in OF_OTHERS if _module(name) in theirs]


def left(also: Sequence[str]) -> Iterator[str]:
    """What stays, because it may be the project's."""
    theirs = used_by_project()
    others = [name for name in OF_OTHERS if name not in also and apps.is_installed(_module(name))]
    for name in others:
        if any(exists(table) for table in tables_of([name])):
            if name in theirs:
                yield f"the tables of {name}, which {settings.WAKEFUL_PROJECT} has, too"
            else:
                yield f"the tables of {name}; `--also {name}` removes them, if your project does not use them"


def _module(label: str) -> str:
    return apps.get_app_config(label).name if label in apps.app_configs else label


def queue_names() -> list[str]:
    served = fetch("SELECT DISTINCT unnest(queues) FROM runs_worker") if exists("runs_worker") else []
    known = {f"runs.{name}" for (name,) in served} | {queue.name for queue in settings.CELERY_TASK_QUEUES}
    return sorted(known - {"celery"})


def keys() -> list[str]:
    """The keys in Redis; with a prefix all that have it. None with another broker, whose queues are named by `queue_names`."""
    prefix = settings.WAKEFUL_BROKER_PREFIX
    with redis_client() as client:
        if client is None:
            return []
        if prefix:
            return sorted(key.decode() for key in client.scan_iter(match=f"{prefix}*", count=1000))
        queues, exchanges = queue_names(), _exchanges()
        wanted = [*queues, *(f"{binding}.{name}" for binding in BINDINGS for name in [*queues, *exchanges])]
        found = {*wanted, *(f"{name}\x06\x16{step}" for name in queues for step in (3, 6, 9))}
        deadlines: list[Any] = client.zrange(DEADLINES, 0, -1)  # bytes; redis' types know more
        timed = {name.decode() for name in deadlines}
        of_ours_alone = [DEADLINES] if timed and timed <= {*queues, *exchanges} else []
        return sorted([*(key for key in found if client.exists(key)), *of_ours_alone])


def _exchanges() -> list[str]:
    control = settings.CELERY_CONTROL_EXCHANGE
    return [control, settings.CELERY_EVENT_EXCHANGE, f"{control}.pidbox", f"reply.{control}.pidbox"]


def delete_keys(found: Sequence[str]) -> None:
    if found:
        with redis_client() as client:
            if client is not None:
                client.delete(*found)
                client.zrem(DEADLINES, *_exchanges())  # where other programs have theirs, it stays
