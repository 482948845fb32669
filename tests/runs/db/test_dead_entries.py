"""A look at the ready runs, at the waits or at the undispatched events begins at the head of an index, where the dead entries are."""

import pytest
from django.db import connection

from runs.db.sql import execute
from tests.support.rows_read import MANY_LIKE_IT
from tests.support.runs import make_run


@pytest.mark.django_db(transaction=True)
def test_a_vacuum_removes_the_entries_of_one_dead_run_among_thousands() -> None:
    run = make_run()
    execute(MANY_LIKE_IT, [run.id])
    execute("VACUUM runs_run")
    notices: list[str] = []
    connection.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))

    run.delete()
    execute("VACUUM (VERBOSE) runs_run")

    [report] = [text for text in notices if "index scan" in text and "pg_toast" not in text]
    assert "index scan needed: 1 pages" in report
