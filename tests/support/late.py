"""Events that are committed late, by sessions of their own."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg
from django.db import connection
from uuid_utils.compat import uuid7

from triggers.accept import builtin_source

INSERT = """
INSERT INTO triggers_event (id, source_id, ce_source, ce_id, type, subject, data, data_error, headers, body_sha256, root_id, depth)
VALUES (%(id)s, %(source)s, 'late', %(id)s, %(type)s, '', '{}', '', '{}', '', %(id)s, 0)
"""


@contextmanager
def session() -> Iterator[psycopg.Connection[Any]]:
    """A session of its own with the database of the test; what it has not committed is rolled back."""
    given = connection.get_connection_params()
    names = ("host", "port", "user", "password", "dbname")
    other = psycopg.connect(**{name: given[name] for name in names if given.get(name)})
    try:
        yield other
    finally:
        other.close()


def record_late(session: psycopg.Connection[Any], type: str = "visitor.came") -> UUID:
    """The id of an event that the session has recorded, and not committed."""
    id = UUID(int=uuid7().int)
    session.execute(INSERT, {"id": id, "source": builtin_source("cli"), "type": type})
    return id
