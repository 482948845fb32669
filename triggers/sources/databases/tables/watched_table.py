"""A watched table: its settings, and where it stands in the database."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.apps import apps
from django.apps.registry import Apps
from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import FieldDoesNotExist, FieldError, ValidationError
from django.db import DatabaseError, connection, models, transaction
from django.db.models import Q
from django.db.models.sql import Query
from psycopg import sql
from psycopg.postgres import types

from agents.kernel.redaction import SECRET_FIELD
from runs.db.sql import fetch, fetch_column
from triggers.sources.settings import InvalidSettings, NotYet, setting, whole_number

OPERATIONS = ("insert", "update", "delete")
ROW, STATEMENT = "row", "statement"
MIGRATE = "run manage.py makemigrations, then manage.py migrate"
MOST = 1_000_000  # most rows of a statement that a setting may allow
LONGEST_CONDITION = 10_000
OUR_APPS = ("agents", "runs", "triggers", "config")
# Apps whose tables change whenever an agent wakes.
OURS = frozenset(
    {
        *OUR_APPS,
        "sessions",
        "admin",
        "migrations",
        "django_celery_results",
        "django_celery_beat",
    }
)
# In a schema without it, tables with names of Wakeful's are those of a project's own app with such a label.
HAS_WAKEFUL = """
SELECT %s::text = current_schema() OR EXISTS (
  SELECT FROM pg_proc JOIN pg_namespace ON pg_namespace.oid = pronamespace WHERE proname = 'wakeful_emit' AND nspname = %s::text)
"""
# Modules whose models hold what proves who a user is, in columns of any name.
CREDENTIALS = (
    "rest_framework.authtoken", "rest_framework_api_key", "rest_framework_simplejwt", "knox", "oauth2_provider", "allauth",
    "social_django", "django_otp", "two_factor", "mozilla_django_oidc",
)  # fmt: skip
SYSTEM = ("pg_catalog", "information_schema", "pg_toast")  # schemas; its catalogs have the passwords of roles
SIZED = frozenset(types[name].oid for name in ("text", "varchar", "bytea"))
OWN_NAMES = "wakeful_"  # of variables and rows in the functions, which such a column would be taken for
NAME = re.compile(r"[^\s.,\"]+(\.[^\s.,\"]+)?")
JOINING = {"and": Q.AND, "or": Q.OR}
FIND = """
SELECT relation.oid, namespace.nspname, relation.relname FROM pg_class relation JOIN pg_namespace namespace ON namespace.oid = relnamespace
WHERE relname = %s::text AND relkind IN ('r', 'p') AND (nspname = %s::text OR %s::text = '' AND pg_table_is_visible(relation.oid))
"""
# Of a domain also the type below it.
COLUMNS = """
SELECT attname, coalesce(attnum = ANY(indkey), false), coalesce(nullif(typbasetype, 0), atttypid)::int8, atttypid::int8, attgenerated = 'v'
FROM pg_attribute
JOIN pg_type ON pg_type.oid = atttypid
LEFT JOIN pg_index ON indrelid = attrelid AND indisprimary
WHERE attrelid = %s::oid AND attnum > 0 AND NOT attisdropped ORDER BY array_position(indkey::int[], attnum::int), attnum
"""
# Partitions and tables that inherit: statements that name one of them do not fire the triggers of its parent.
FAMILY = """
WITH RECURSIVE family AS (
  SELECT %s::oid AS id UNION SELECT inhrelid FROM pg_inherits JOIN family ON inhparent = family.id)
SELECT id::int8 FROM family JOIN pg_class ON pg_class.oid = id WHERE relkind IN ('r', 'p') ORDER BY 1
"""


class Forbidden(InvalidSettings):
    """A table that must not be watched, even by a source that was created when it was allowed."""


def models_to_watch() -> list[str]:
    return sorted(model._meta.label for model in apps.get_models() if model._meta.managed and not _is_refused(model))


def named(value: str) -> list[str]:
    """The names in a list such as “status, amount”."""
    return [name for name in (part.strip() for part in value.split(",")) if name]


def table_name(value: str) -> str:
    return "" if NAME.fullmatch(value) else "must be a model such as helpdesk.Ticket, or a table such as public.ticket"


def condition_text(value: str) -> str:
    try:
        parse_condition(value)
    except ValueError as error:
        return str(error)
    return ""


@dataclass(frozen=True, kw_only=True)
class TableSettings:
    """The table, and the changes of it that are events."""

    table: str = setting(
        "",
        "Table",
        "A model such as helpdesk.Ticket, or a table of this database such as public.ticket.",
        check=table_name,
        suggest=models_to_watch,
    )
    inserts: bool = setting(True, "Inserts")
    updates: bool = setting(True, "Updates")
    deletes: bool = setting(True, "Deletes", "TRUNCATE deletes every row.")
    each: str = setting(
        ROW,
        "An event for each",
        "row: with its old and new values. statement: with the number of its rows and their primary keys, such as for bulk changes.",
        choices=(ROW, STATEMENT),
    )
    columns: str = setting(
        "", "Columns", "An update is an event if it changes one of these, such as: status, amount. Empty: any column."
    )
    exclude: str = setting(
        "",
        "Excluded columns",
        "Their values are never stored. Columns whose names look like those of secrets are excluded, too.",
    )
    secrets: str = setting(
        "",
        "Columns that are no secrets",
        "Columns that are stored although their names look like those of secrets, but never of users.",
    )
    condition: str = setting(
        "",
        "Condition",
        'Lookups of the row (of a deleted one: as it was) in JSON, such as {"status": "open", "amount__gte": 100}, or with '
        '{"or": […]}, {"not": …}. Empty: every row.',
        check=condition_text,
    )
    most: int = setting(
        100_000,
        "Rows of a statement",
        "A statement that changes more rows makes events of the first ones, and is shown on the page of the source. With an event for each "
        "statement, all rows count.",
        check=whole_number(1, MOST),
    )
    sweep_hours: int = setting(
        0,
        "Sweep every (hours)",
        "Read the whole table that often, to find changes that its triggers did not see, and make events of them. 0: never.",
        check=whole_number(0, 24 * 30),
    )

    def __post_init__(self) -> None:
        if not self.table:
            raise InvalidSettings({"table": "is missing; name a model such as helpdesk.Ticket"})
        if not self.operations:
            raise InvalidSettings({"inserts": "choose at least one of inserts, updates and deletes"})
        if self.is_by_statement and self.sweep_hours:
            raise InvalidSettings(
                {"sweep_hours": "must be 0 with an event for each statement: a sweep compares events of rows"}
            )

    @property
    def is_by_statement(self) -> bool:
        return self.each == STATEMENT

    @property
    def operations(self) -> tuple[str, ...]:
        chosen = (self.inserts, self.updates, self.deletes)
        return tuple(name for name, is_chosen in zip(OPERATIONS, chosen, strict=True) if is_chosen)


def parse_condition(text: str) -> Q:
    """ValueError names the fault."""
    if not text.strip():
        return Q()
    if len(text) > LONGEST_CONDITION:
        raise ValueError(f"is longer than {LONGEST_CONDITION:,} characters")
    try:
        return _q(json.loads(text))
    except json.JSONDecodeError as error:
        raise ValueError(f'must be JSON such as {{"status": "open"}}: {error}') from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def _q(value: Any) -> Q:
    if not isinstance(value, dict) or not value:
        raise ValueError('must be lookups such as {"status": "open"}')
    q = Q()
    for name, inner in value.items():
        if name in JOINING:
            if not isinstance(inner, list) or not inner:
                raise ValueError(f"{name} must have a list of conditions")
            q &= Q(*map(_q, inner), _connector=JOINING[name])
        elif name == "not":
            q &= ~_q(inner)
        else:
            q &= Q((name, inner))
    return q


@dataclass(frozen=True, kw_only=True)
class Watched:
    """A table as it is now, with the settings in its own terms."""

    oid: int
    schema: str
    table: str
    name: str  # in the types of its events: helpdesk.ticket
    key: Sequence[str]  # columns of the primary key, in its order; empty: it has none
    columns: Sequence[str]
    types: Mapping[str, int]  # of columns: oids, as the catalog has them
    virtual: Sequence[str]  # columns that are computed when they are read, which the rows of a statement do not have
    sized: Sequence[str]  # columns whose length PostgreSQL knows without unpacking their values
    watched: Sequence[str]  # an update counts if one of these changes; empty: all that are stored
    excluded: Sequence[str]
    condition: str  # SQL; empty: every row
    relations: Sequence[int]  # oids: itself, its partitions, and tables that inherit from it


def find(settings: TableSettings) -> Watched:
    """Raises InvalidSettings."""
    model = _model(settings.table)
    if model is not None:
        schema, table = "", model._meta.db_table
        if '"."' in table:
            schema, table = table.strip('"').split('"."')
        name = model._meta.label_lower
    else:
        schema, _, table = settings.table.rpartition(".")
        name = settings.table if schema else f"public.{table}"
    found = fetch(FIND, [table, schema, schema])
    if not found and model is not None:
        raise NotYet({"table": f"the model {settings.table} has no table yet: {MIGRATE}"})
    if not found:
        raise InvalidSettings({"table": f"no model and no table of this database is named {settings.table}"})
    oid, schema, table = found[0]
    _refuse(schema, table)
    rows = fetch(COLUMNS, [oid])
    columns = [column for column, *_ in rows]
    if taken := [column for column in columns if column.startswith(OWN_NAMES)]:
        said = f"the column {taken[0]} cannot be watched: names that begin with {OWN_NAMES} are those of Wakeful's functions"
        raise InvalidSettings({"table": said})
    stored = set(_columns("secrets", settings.secrets, model, columns))
    secret = [name for name in columns if SECRET_FIELD.search(name)]
    if kept := sorted(stored.intersection(secret)) if table in _tables_of_users() else ():
        raise Forbidden({"secrets": f"{kept[0]} stays excluded: {table} is a table of users"})
    secret = [name for name in secret if name not in stored]
    excluded = _columns("exclude", settings.exclude, model, columns)
    excluded += [name for name in secret if name not in excluded]
    key = [column for column, is_key, *_ in rows if is_key]
    key = [] if {*key} & {*excluded} else key  # it stands in each event
    if settings.sweep_hours and not key:
        raise InvalidSettings({"sweep_hours": "needs a primary key that is not excluded, and the table has none"})
    return Watched(
        oid=oid,
        schema=schema,
        table=table,
        name=name,
        key=key,
        columns=columns,
        types={column: own for column, _, _, own, _ in rows},
        virtual=[column for column, *_, is_virtual in rows if is_virtual],
        sized=[column for column, _, base, *_ in rows if base in SIZED],
        watched=_columns("columns", settings.columns, model, columns),
        excluded=excluded,
        condition=_condition(
            settings, model or _model_of(table, rows), f"{_quoted(schema)}.{_quoted(table)}", columns, secret
        ),
        relations=fetch_column(FAMILY, [oid]),
    )


def _model(label: str) -> type[models.Model] | None:
    try:
        return apps.get_model(label)
    except (LookupError, ValueError):
        return None


def _refuse(schema: str, table: str) -> None:
    refused = [one._meta for one in apps.get_models(include_auto_created=True) if _is_refused(one)]
    ours = {one.db_table for one in refused if one.app_label in OUR_APPS}
    others = {one.db_table for one in refused if one.app_label not in OUR_APPS}
    is_ours = table in ours or table.startswith(tuple(f"{app}_" for app in ("agents", "runs", "triggers")))
    if table in others or table.startswith("django_") or (is_ours and fetch(HAS_WAKEFUL, [schema, schema])[0][0]):
        said = f"{table} is a table of Wakeful's own, which changes whenever an agent wakes, or holds credentials"
        raise Forbidden({"table": said})
    if schema in SYSTEM:
        raise Forbidden({"table": f"{schema} is a schema of PostgreSQL's own"})


def _is_refused(model: type[models.Model]) -> bool:
    return model._meta.app_label in OURS or f"{model.__module__}.".startswith(tuple(f"{name}." for name in CREDENTIALS))


def _tables_of_users() -> set[str]:
    return {one._meta.db_table for one in apps.get_models() if issubclass(one, AbstractBaseUser)}


def _columns(setting: str, text: str, model: type[models.Model] | None, columns: Sequence[str]) -> list[str]:
    """Columns by their names or those of their fields."""
    found = []
    for name in named(text):
        try:
            field = model._meta.get_field(name) if model else None
        except FieldDoesNotExist:
            field = None
        column = getattr(field, "column", None) or name
        if field and column not in columns:
            raise NotYet({setting: f"the table has no column {column!r} yet: {MIGRATE}"})
        if column not in columns:
            raise InvalidSettings({setting: f"the table has no column {name!r}; it has {', '.join(columns)}"})
        found.append(column)
    return found


def _model_of(table: str, rows: Sequence[tuple[str, bool, int, int, bool]]) -> type[models.Model]:
    """A model for the conditions of a table that has none."""
    kinds = {name: connection.introspection.data_types_reverse.get(type_oid) for name, _, type_oid, *_ in rows}
    fields: dict[str, models.Field[Any, Any]] = {}
    for name, kind in kinds.items():
        if not NO_FIELD.search(name):
            options = {"max_digits": 1000, "decimal_places": 100} if kind == "DecimalField" else {}
            fields[name] = getattr(models, kind if kind in SIMPLE else "TextField")(db_column=name, **options)
    first = next(iter(fields.values()), None)
    if first:
        first.primary_key, first.unique = True, True
    meta = type("Meta", (), {"apps": Apps(), "app_label": "watched", "managed": False, "db_table": table})
    return type("Table", (models.Model,), {**fields, "__module__": __name__, "Meta": meta})


NO_FIELD = re.compile(r"^_|__|%|^(?:Meta|objects|pk)$")  # names that a field of a model cannot have
SIMPLE = frozenset(
    {
        "BooleanField", "CharField", "DateField", "DateTimeField", "DecimalField", "FloatField", "BigIntegerField", "IntegerField",
        "SmallIntegerField", "TimeField", "UUIDField", "JSONField", "DurationField", "GenericIPAddressField",
    }
)  # fmt: skip


def _condition(
    settings: TableSettings, model: type[models.Model], table: str, columns: Sequence[str], secret: Sequence[str]
) -> str:
    """The condition as SQL with literals, about columns without a table: as Django writes that of a CHECK constraint. PostgreSQL
    must understand it. A condition on a secret column would reveal the secret, letter by letter."""
    q = parse_condition(settings.condition)
    if not q:
        return ""
    asked = _asked(q, model)
    if missing := sorted(asked.intersection(field.column for field in model._meta.fields).difference(columns)):
        raise NotYet({"condition": f"the table has no column {missing[0]!r} yet: {MIGRATE}"})
    if told := sorted(asked.intersection(secret)):
        raise Forbidden({"condition": f"must not look at {told[0]}, which is excluded as a secret"})
    try:
        query = Query(model=model, alias_cols=False)
        where = query.build_where(q)
        statement, parameters = query.get_compiler(connection=connection).compile(where)
        with connection.schema_editor(collect_sql=True) as editor:
            condition = str(statement % tuple(editor.quote_value(one) for one in parameters))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(f"SELECT FROM {table} WHERE {condition} LIMIT 0")  # noqa: S608  (quoted names and literals)
    except (FieldError, ValueError, TypeError, ValidationError, DatabaseError) as error:
        raise InvalidSettings({"condition": f"{error}".strip().partition("\n")[0]}) from None
    return condition


def _asked(q: Q, model: type[models.Model]) -> set[str]:
    """The columns whose values decide."""
    found = set()
    for part in q.children:
        if isinstance(part, Q):
            found |= _asked(part, model)
        elif isinstance(part, tuple):
            name = str(part[0]).partition("__")[0]
            fields = {"pk": model._meta.pk, **{field.name: field for field in model._meta.fields}}
            found.add(str(getattr(fields.get(name), "column", name)))  # also the name of a column, such as user_id
    return found


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string(None)


def settings_of(source: Mapping[str, Any]) -> TableSettings:
    from triggers.sources.settings import clean

    return clean(TableSettings, source)
