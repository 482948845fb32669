"""Emit an event from the code of any Django project, in the transaction of its caller. It needs a connection of Django's to the
database of Wakeful, and none of Wakeful's settings or apps."""

from typing import Any
from uuid import UUID

from django.core.exceptions import ImproperlyConfigured
from django.core.serializers.json import DjangoJSONEncoder
from django.db import DataError, connections

from agents.guards.storable import json_text
from agents.kernel.event_names import too_long
from agents.kernel.reserved_types import is_reserved, refusal

# Wakeful may have a schema of its own, which is not on the search path of the project.
FIND = """
SELECT pg_catalog.quote_ident(space.nspname), pg_catalog.pg_function_is_visible(pg_proc.oid)
FROM pg_catalog.pg_proc JOIN pg_catalog.pg_namespace space ON space.oid = pronamespace
WHERE proname = 'wakeful_emit' ORDER BY 2 DESC, 1
"""
REFUSED = "wakeful_emit: "  # how the function begins what it says of an argument
EMIT = "SELECT {schema}.wakeful_emit(%s::text, %s::jsonb, %s::text, %s::text)"
LONGEST_ID = 255  # characters
_schemas: dict[tuple[str, ...], str] = {}


def emit(type: str, data: Any = None, *, subject: str = "", id: str | None = None, using: str = "default") -> UUID:
    """Record an event in the current transaction of the connection `using`; returns the event's id. Agents wake after the commit,
    and a rollback removes the event. Outside of a transaction it is committed at once.

    `data` is JSON; times, decimals and UUIDs become texts, as in Django's JSON. An event whose `id` was emitted before is a
    duplicate: it is not recorded, and the first one's id is returned. ValueError: an argument cannot be stored, or the type is
    reserved for Wakeful. ImproperlyConfigured: Wakeful is not in that database, or in several of its schemas."""
    if fault := _fault(type, subject, id):
        raise ValueError(f"emit: {fault}")
    text = None if data is None else json_text(data, f"the data of {type}", DjangoJSONEncoder().default)
    statement = EMIT.format(schema=schema_of(using))
    with connections[using].cursor() as cursor:
        try:
            cursor.execute(statement, [type, text, subject, id])
        except DataError as error:
            if not str(error).startswith(REFUSED):
                raise
            raise ValueError(f"emit: {str(error).removeprefix(REFUSED).partition(chr(10))[0]}") from error
        return UUID(str(cursor.fetchone()[0]))


def _fault(type: str, subject: str, id: str | None) -> str:
    if not type.strip():
        return "the type is empty; use a name such as invoice.paid"
    if is_reserved(type):
        return refusal(type)
    if id is not None and not 1 <= len(id) <= LONGEST_ID:
        return f"the id has {len(id):,} characters; use 1 to {LONGEST_ID}, or None for a new one"
    for name, text in (("type", type), ("subject", subject), ("id", id or "")):
        if "\0" in text:
            return f"the {name} contains a NUL character, which PostgreSQL cannot store; remove it"
    return too_long(type=type, subject=subject)


def schema_of(using: str) -> str:
    """The quoted name of Wakeful's schema in that database. ImproperlyConfigured: as of `emit`."""
    connection = connections[using]
    if connection.vendor != "postgresql":
        raise ImproperlyConfigured(
            f"emit: the database {using!r} is not PostgreSQL; name the connection to Wakeful's database with `using`"
        )
    database = tuple(str(connection.settings_dict[name]) for name in ("HOST", "PORT", "NAME", "USER", "OPTIONS"))
    if database not in _schemas:
        with connection.cursor() as cursor:
            cursor.execute(FIND)
            found = cursor.fetchall()
        if not found:
            raise ImproperlyConfigured(
                f"emit: the database {using!r} has no function wakeful_emit; run `migrate` of Wakeful there, or name the "
                "connection to Wakeful's database with `using`"
            )
        [(schema, is_visible), *others] = found
        if others and not is_visible:  # another installation's, or one that a stranger made to be called in its place
            named = ", ".join(name for name, _ in found)
            raise ImproperlyConfigured(
                f"emit: the database {using!r} has the function wakeful_emit in several schemas: {named}. Name that of Wakeful in "
                "the search path of a connection of yours, behind your own, and the connection with `using`"
            )
        _schemas[database] = schema
    return _schemas[database]
