"""A look at the ready runs, at the waits or at the undispatched events begins at the head of an index, where the dead entries are."""

import pytest
from django.db import connection

from runs.db.sql import execute, fetch
from tests.support.rows_read import MANY_LIKE_IT
from tests.support.runs import make_run


@pytest.mark.django_db(transaction=True)
def test_a_vacuum_removes_the_entries_of_one_dead_run_among_thousands() -> None:
    run = make_run()
    execute(MANY_LIKE_IT, [run.id])
    execute("VACUUM runs_run")
    said: list[str] = []
    connection.connection.add_notice_handler(lambda notice: said.append(notice.message_primary))

    run.delete()
    execute("VACUUM (VERBOSE) runs_run")

    [report] = [text for text in said if "index scan" in text and "pg_toast" not in text]
    assert "index scan needed: 1 pages" in report


@pytest.mark.django_db
@pytest.mark.parametrize("table", ["runs_run", "runs_wait", "triggers_event"])
def test_a_vacuum_always_removes_dead_entries(table: str) -> None:
    [(options,)] = fetch("SELECT reloptions FROM pg_class WHERE oid = %s::regclass", [table])

    assert "vacuum_index_cleanup=on" in options
