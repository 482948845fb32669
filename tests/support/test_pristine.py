"""A test that commits leaves neither a transaction nor a lock to the next one."""

from collections.abc import Iterator

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.db import connection, transaction

from runs.db.sql import execute
from tests.support import pristine
from triggers.models import Source

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def impatient() -> Iterator[None]:
    """What puts rows back fails here where it would wait for ever."""
    with pristine._session().cursor() as cursor:
        cursor.execute("SET lock_timeout = '2s'")
    yield
    with pristine._session().cursor() as cursor:
        cursor.execute("RESET lock_timeout")


def test_rows_are_put_back_although_a_test_left_a_transaction_open(impatient: None) -> None:
    transaction.set_autocommit(False)
    Source.objects.update(kind="changed")

    pristine.put_back()

    connection.close()
    assert not Source.objects.filter(kind="changed").exists()


def test_a_session_that_a_test_left_without_autocommit_is_not_kept() -> None:
    execute("SELECT 1")
    transaction.set_autocommit(False)

    pristine.renew_session()

    assert connection.get_autocommit()


def test_rows_of_the_migrations_are_put_back_however_they_were_changed() -> None:
    before = contents()

    Group.objects.filter(name="viewer").update(name="changed")
    Group.objects.create(name="added")
    ContentType.objects.order_by("pk")[:1].get().delete()
    pristine.put_back()

    assert contents() == before


def test_a_row_that_was_replaced_by_another_is_put_back() -> None:
    before = contents()

    Group.objects.filter(name="viewer").delete()
    Group.objects.create(name="instead")
    pristine.put_back()
    again = contents()
    pristine.put_back()

    assert again == contents() == before


def test_rows_are_put_back_after_all_tables_were_emptied() -> None:
    before = contents()

    pristine.make_empty()

    assert contents() == before


def contents() -> list[object]:
    return [list(model._default_manager.order_by("pk").values_list()) for model in (Group, Permission, ContentType)]
