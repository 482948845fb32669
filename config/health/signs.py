"""All signs of trouble (`runs.sign`), read in one statement. Pages, /health/ready and the alarms wait for them: a sign that has taken too
long is left alone for a while."""

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import structlog
from django.db import DatabaseError, connection
from psycopg.errors import QueryCanceled

import runs
import triggers
from runs.db.patience import statements_take
from runs.db.sql import fetch
from runs.sign import Sign

log = structlog.get_logger(__name__)

Rows = Mapping[Sign[Any], list[dict[str, Any]]]
Errors = Mapping[Sign[Any], str]
ALONE = timedelta(seconds=5)  # for a sign that is read by itself
TOGETHER = 30.0  # seconds for all signs that are read one by one: each may be slow because the database is
SLOW_FOR = 600.0  # seconds
# Signs that took too long, until when they are left alone (monotonic seconds), and their errors.
slow: dict[Sign[Any], tuple[float, str]] = {}


@cache
def signs() -> Sequence[Sign[Any]]:
    """Every sign: those that the modules in folders named `signs` define."""
    found = []
    for room in (runs, triggers):
        [top] = [Path(path) for path in room.__path__]
        for file in sorted(top.glob("**/signs/[!_]*.py")):
            module = import_module(".".join((room.__name__, *file.relative_to(top).with_suffix("").parts)))
            found += [value for value in vars(module).values() if isinstance(value, Sign)]
    return found


def read(wanted: Sequence[Sign[Any]]) -> tuple[Rows, Errors]:
    """The rows of each sign, in one round trip. If that fails, each sign is read by itself, so that a table that is locked, slow or
    forbidden hides no other; the errors are of the signs that cannot be read.

    In a transaction an error ends the transaction, so it is raised there, as it is if the connection is lost or no sign can be read.
    """
    known = slow.copy()  # other threads read, too
    left = {sign: known[sign] for sign in wanted if sign in known}
    quick = [sign for sign in wanted if sign not in left]
    again = [sign for sign, (until, _) in left.items() if until <= time.monotonic() and not connection.in_atomic_block]
    errors = {sign: error for sign, (_, error) in left.items() if sign not in again}
    try:
        rows, failed = dict(_joined(quick)), dict[Sign[Any], str]()
    except DatabaseError as error:
        if connection.in_atomic_block or not connection.connection or connection.connection.closed:
            raise
        log.warning("signs.not_read_at_once", error=str(error))
        rows, failed = _one_by_one(quick)
        if not rows:
            raise
    if again:
        found, failed_again = _one_by_one(again)
        return {**rows, **found}, {**errors, **failed, **failed_again}
    return rows, {**errors, **failed}


def _joined(wanted: Sequence[Sign[Any]]) -> Rows:
    # Columns, because a function has 100 arguments at most.
    [values] = fetch(f"SELECT {', '.join(sign.query for sign in wanted)}", _parameters(wanted))
    return dict(zip(wanted, values, strict=True))


def _parameters(wanted: Iterable[Sign[Any]]) -> dict[str, Any]:
    return {name: value for sign in wanted for name, value in sign.parameters().items()}


def _one_by_one(wanted: Sequence[Sign[Any]]) -> tuple[dict[Sign[Any], list[dict[str, Any]]], dict[Sign[Any], str]]:
    rows: dict[Sign[Any], list[dict[str, Any]]] = {}
    errors: dict[Sign[Any], str] = {}
    until = time.monotonic() + TOGETHER
    for sign in wanted:
        if time.monotonic() > until:
            errors[sign] = f"not read: those before it took {TOGETHER:g} s"
            continue
        try:
            with statements_take(ALONE):
                rows.update(_joined([sign]))
            slow.pop(sign, None)  # only now: meanwhile, others do not wait for it together with the quick ones
        except DatabaseError as error:
            if not connection.connection or connection.connection.closed:
                raise
            log.warning("sign.not_read", sign=sign.name, error=str(error))
            errors[sign] = str(error).partition("\n")[0]
            if isinstance(error.__cause__, QueryCanceled) and sign in signs():  # nothing is known without the others
                slow[sign] = time.monotonic() + SLOW_FOR, errors[sign]
            else:
                slow.pop(sign, None)
    return rows, errors
