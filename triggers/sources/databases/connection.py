"""The address of a PostgreSQL server, as a source's settings and secret give it, and errors of it in words."""

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from triggers.sources.runner import SourceError

ALLOWED = {"host", "port", "user", "dbname", "sslmode", "sslrootcert", "channel_binding", "target_session_attrs"}
NEEDED = ("host", "user", "dbname")
FORM = "postgresql://user@host:5432/database?sslmode=verify-full"
CHECK = (
    "Check the address and the password, that pg_hba.conf lets the user in, and that it has the attribute REPLICATION "
    "(ALTER ROLE … REPLICATION, or the provider's own way). A pooler such as PgBouncer cannot stand between."
)


def address(value: str) -> str:
    """The error of an address, or an empty text."""
    try:
        found = conninfo_to_dict(value)
    except psycopg.Error:
        return f"must have the form {FORM}"
    if found.get("password"):
        return "must not have the password: enter it as the source's secret"
    if missing := [name for name in NEEDED if not found.get(name)]:
        return f"must have the form {FORM}; there is no {missing[0]}"
    if others := sorted(set(found) - ALLOWED):
        return f"must not have {others[0]}; use {', '.join(sorted(ALLOWED))}"
    return ""


def conninfo(url: str, password: str) -> str:
    return make_conninfo(url, password=password) if password else url


def in_words(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].removeprefix("ERROR:").removeprefix("FATAL:").strip()


def source_error(error: psycopg.Error) -> SourceError:
    return SourceError(f"PostgreSQL says: {in_words(error).rstrip('.')}.", remedy=CHECK)
