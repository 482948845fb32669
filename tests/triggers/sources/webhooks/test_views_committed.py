"""What only committed transactions and real connections can show."""

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.hooks import make_source, post, signed_headers
from tests.support.stack import Stack
from triggers.models import Event, Secret

pytestmark = pytest.mark.urls("tests.triggers.sources.urls")


@pytest.fixture
def committed(stack: Stack) -> Iterator[Stack]:
    with stack.orm():
        make_source()
        yield stack


def test_a_connection_that_died_costs_no_delivery(committed: Stack) -> None:
    committed.query(
        "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    assert post(b"{}", signed_headers(b"{}")).status_code == 202


def test_a_locked_secret_delays_no_answer(committed: Stack) -> None:
    with psycopg.connect(committed.database_url) as holder:
        holder.execute("SELECT 1 FROM triggers_secret FOR UPDATE")

        assert post(b"{}", signed_headers(b"{}")).status_code == 202

    assert Event.objects.count() == 1
    assert Secret.objects.get().last_matched_at is None
