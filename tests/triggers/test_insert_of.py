"""One statement records many verified events, and says which."""

from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import psycopg
import pytest
from django.db import connection

from tests.support.hooks import add_secret, make_source
from triggers.accept import SIZES, Incoming, Verified, insert_of
from triggers.models import Event, Source
from triggers.sources.webhooks.endpoint import find_endpoint

pytestmark = pytest.mark.django_db


def verified(slug: str, id_: str) -> Verified:
    endpoint = find_endpoint(slug)
    event = Incoming(
        source_id=endpoint.id, ce_source="/hooks", ce_id=id_, type="order.paid", data={"a": [1]}, body=b'{"a": [1]}'
    )
    return Verified(event=event, state=endpoint.state)


def recorded(events: Sequence[Verified]) -> set[UUID]:
    connection.ensure_connection()
    cursor = psycopg.RawCursor(connection.connection)
    cursor.execute(*insert_of(events))
    return {id for (id,) in cursor.fetchall()}


@pytest.mark.parametrize("number", [1, 2, 9, SIZES[-2] + 1, SIZES[-1]])
def test_each_is_recorded_once_whatever_their_number(number: int) -> None:
    make_source()
    events = [verified("shop", str(one)) for one in range(number)]

    assert recorded(events) == {one.id for one in events}
    found = Event.objects.order_by("seq").values_list("ce_id", "data", "body", "root_id", "id")
    assert [(id_, data, bytes(body or b""), root == id) for id_, data, body, root, id in found] == [
        (str(one), {"a": [1]}, b'{"a": [1]}', True) for one in range(number)
    ]


def test_of_equal_ones_the_first_is_recorded_and_of_known_ones_none() -> None:
    make_source()
    first, same, other = verified("shop", "1"), verified("shop", "1"), verified("shop", "2")

    assert recorded([first, same, other]) == {first.id, other.id}
    assert recorded([same, verified("shop", "2")]) == set()


def test_of_a_source_that_has_changed_or_is_disabled_none_is_recorded() -> None:
    shop = make_source()
    for slug in ("changed", "off", "gone"):
        make_source(slug)
    events = [verified(slug, "1") for slug in ("shop", "changed", "off", "gone")]
    of_another = replace(verified("shop", "2"), state=events[1].state)
    add_secret(Source.objects.get(slug="changed"), "another")
    Source.objects.filter(slug="off").update(enabled=False)
    Source.objects.filter(slug="gone").delete()

    assert recorded([*events, of_another]) == {events[0].id}
    assert list(Event.objects.values_list("source_id", flat=True)) == [shop.pk]
