"""When the database counts as away: its connection fails, it has ended the session because this process stood still, or its
server only reads (a standby, or a primary that was made read-only). Code that handles a missing database handles all of
them, because the others are raised as the first."""

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
    """An execute wrapper of Django's: what is refused so is an OperationalError, and ends the session.
    The next connection goes to a server that writes (target_session_attrs), or fails like any other."""
    try:
        return execute(sql, params, many, context)
    except (InternalError, NotSupportedError) as error:
        if getattr(error.__cause__, "sqlstate", None) == STOOD_STILL:
            context["connection"].close()
            raise OperationalError(f"the session stood still in a transaction and was ended: {error}") from error
        if not _only_reads(context["connection"], error):
            raise
        context["connection"].close()
        raise OperationalError(f"the database server only reads: {error}") from error


def _only_reads(connection: Any, error: Exception) -> bool:
    """Is it the server that refuses to write, and not a session that was told to only read?"""
    sqlstate = getattr(error.__cause__, "sqlstate", None)
    if connection.connection is None or sqlstate not in (READ_ONLY, NOT_DURING_RECOVERY):
        return False
    told = connection.connection.info.parameter_status  # the server reports changes of these by itself
    if told("in_hot_standby") == "on":
        return True
    return sqlstate == READ_ONLY and not session.is_read_only() and told("default_transaction_read_only") != "off"


def _watch(connection: Any, **kwargs: Any) -> None:
    # First: execute_wrapper(), within which a connection may be made, takes away the last.
    if connection.vendor == "postgresql" and as_away not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, as_away)


connection_created.connect(_watch)
