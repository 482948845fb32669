"""The address of a PostgreSQL server, as a source's settings and secret give it, and errors of it in words."""

from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from triggers.sources.runner import SourceError

# Others make libpq read and write files (sslkeylogfile), and send what the process has (service, passfile, sslkey).
ALLOWED = {
    "host", "hostaddr", "port", "user", "dbname", "sslmode", "sslrootcert", "channel_binding", "target_session_attrs",
    "application_name", "connect_timeout",
}  # fmt: skip
# Of the process's environment and user: no source connects as they do.
NOT_OURS: dict[str, Any] = {"password": "", "passfile": "/nonexistent"}
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
    return fault_of(found)


def fault_of(found: dict[str, Any], also: frozenset[str] = frozenset()) -> str:
    """The forbidden part of a connection string, or an empty text."""
    allowed = ALLOWED | also
    if others := sorted(set(found) - allowed):
        return f"must not have {others[0]}; use {', '.join(sorted(allowed))}"
    hosts = f"{found.get('host') or ''},{found.get('hostaddr') or ''}".split(",")
    if any(host.startswith(("/", "@")) for host in hosts):
        return "must name the host of the server, not a socket, on which a user is known by the process"
    return ""


def conninfo(url: str, password: str = "") -> str:
    """The connection string with the password of the source, or without any."""
    given = {name: value for name, value in conninfo_to_dict(url).items() if value is not None}
    chosen = {"password": password} if password else {}
    return make_conninfo(**{**NOT_OURS, **given, **chosen})


def in_words(error: psycopg.Error) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0].removeprefix("ERROR:").removeprefix("FATAL:").strip()


def source_error(error: psycopg.Error) -> SourceError:
    return SourceError(f"PostgreSQL reports: {in_words(error).rstrip('.')}.", remedy=CHECK)
