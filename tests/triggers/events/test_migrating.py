"""The indexes by `seq` are built beside open transactions; a `migrate` that was interrupted meanwhile can be repeated."""

import pytest
from django.core.management import call_command
from django.db import OperationalError

from runs.db.sql import execute, fetch
from tests.support.late import record_late, session

pytestmark = pytest.mark.django_db(transaction=True)

BEFORE = "0010_trusted_sources"
INDEXES = """
SELECT relname, indisvalid FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
WHERE indrelid = 'triggers_event'::regclass ORDER BY relname
"""


def migrate(*to: str) -> None:
    call_command("migrate", "triggers", *to, verbosity=0)


def interrupted(*to: str) -> None:
    """The build waits for an open transaction, and is cancelled."""
    with session() as writer:
        record_late(writer)
        execute("SET statement_timeout = '1s'")
        try:
            with pytest.raises(OperationalError, match="statement timeout"):
                migrate(*to)
        finally:
            execute("RESET statement_timeout")


@pytest.mark.chaos
def test_an_interrupted_migration_of_the_indexes_is_repeated_in_both_directions() -> None:
    there = fetch(INDEXES)
    assert all(is_valid for _, is_valid in there)
    try:
        interrupted(BEFORE)
        migrate(BEFORE)
        former = fetch(INDEXES)
        assert former != there and all(is_valid for _, is_valid in former)

        interrupted()
    finally:
        migrate()

    assert fetch(INDEXES) == there
