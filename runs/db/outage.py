"""The database counts as away if its connection fails, if it ended the session because this process stood still in a transaction,
or if its server is read-only (a standby, or a primary set to read-only). All raise OperationalError, so one handler is enough."""

from collections.abc import Callable
from typing import Any

from django.db import InterfaceError, InternalError, NotSupportedError, OperationalError
from django.db.backends.signals import connection_created

from runs.db import session

CONNECTION_ERRORS = (OperationalError, InterfaceError)
READ_ONLY = "25006"  # read_only_sql_transaction
STOOD_STILL = "25P03"  # idle_in_transaction_session_timeout
NOT_DURING_RECOVERY = "0A000"  # feature_not_supported: a standby's answer to BEGIN READ WRITE


def as_away(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """An execute wrapper of Django's: raise OperationalError and close the session. The next connection goes to a server that
    writes (target_session_attrs), or fails like any other."""
    try:
        return execute(sql, params, many, context)
    except (InternalError, NotSupportedError) as error:
        raise_if_away(context["connection"], error)
        raise


def raise_if_away(connection: Any, error: Exception) -> None:
    if getattr(error.__cause__, "sqlstate", None) == STOOD_STILL:
        connection.close()
        raise OperationalError(f"PostgreSQL ended the session, which was idle in a transaction: {error}") from error
    if _only_reads(connection, error):
        connection.close()
        raise OperationalError(f"the database server is read-only: {error}") from error


def _only_reads(connection: Any, error: Exception) -> bool:
    """Does the server refuse to write, rather than a session that is read-only on purpose?"""
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    if connection.connection is None or sqlstate not in (READ_ONLY, NOT_DURING_RECOVERY):
        return False
    told = connection.connection.info.parameter_status  # the server reports changes of these
    if told("in_hot_standby") == "on":
        return True
    return sqlstate == READ_ONLY and not session.is_read_only() and told("default_transaction_read_only") != "off"


def _watch(connection: Any, **kwargs: Any) -> None:
    # First in the list: execute_wrapper() removes the last one, and a connection may be made inside it.
    if connection.vendor == "postgresql" and as_away not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, as_away)


connection_created.connect(_watch)
