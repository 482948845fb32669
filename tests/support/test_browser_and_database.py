"""A browser in a process whose other tests use the database."""

import pytest
from django.db import connection

from runs.db.sql import fetch, fetch_again
from tests.support.browser import browsing, find_chromium, how_to_install
from tests.support.stack import eventually


def of_kept_cursor() -> int:
    """The process of the session that the cursor of this thread is of."""
    [(pid,)] = fetch_again("SELECT pg_backend_pid()")
    return int(pid)


@pytest.mark.browser
@pytest.mark.django_db(transaction=True)
def test_before_beside_and_after_a_browser_the_kept_cursor_is_of_the_connection() -> None:
    chromium = find_chromium()
    if chromium is None:
        pytest.skip(how_to_install())

    def of_connection() -> int:
        return int(connection.connection.info.backend_pid)

    before = of_kept_cursor()
    assert before == of_connection()
    with browsing(chromium):
        beside = of_kept_cursor()
        assert beside == of_connection()
    after = of_kept_cursor()
    assert after == of_connection()
    assert len({before, beside, after}) == 3
    gone = "SELECT count(*) FROM pg_stat_activity WHERE pid IN (%s, %s)"
    eventually(lambda: fetch(gone, [before, beside]) == [(0,)])
