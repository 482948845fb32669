"""A page is as quick in a process that has shown it often as in a new one."""

import pytest
from django.db import connection
from django.test import Client

from runs.db.sql import fetch
from tests.support.runs import make_run

LIST = "/admin/runs/run/?status__exact=failed"


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", [LIST, "/admin/"])
def test_the_lists_of_a_page_are_planned_with_their_values(admin_client: Client, path: str) -> None:
    """Else PostgreSQL would read all runs for those that failed, once the statement has been executed some times."""
    make_run(status="failed")
    for _ in range(8):
        assert admin_client.get(path).status_code == 200

    prepared = [statement for (statement,) in fetch("SELECT statement FROM pg_prepared_statements")]
    assert not [statement for statement in prepared if 'FROM "runs_run"' in statement and "LIMIT" in statement]
    assert connection.connection.prepare_threshold == 2
