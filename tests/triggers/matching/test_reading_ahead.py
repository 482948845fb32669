"""Events that were read in an earlier round trip are dispatched like others, and only where the same is wanted."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs.db.trip import one_trip
from tests.support.triggers import make_event
from triggers.matching.pending import read_items, reading_ahead

pytestmark = pytest.mark.django_db


def test_what_was_read_ahead_is_what_would_be_read_and_is_not_read_again() -> None:
    earlier, later = make_event(), make_event()
    expected = read_items(10)
    with reading_ahead(10) as ask:
        with one_trip(begins=False) as trip:
            ask(trip)
        with CaptureQueriesContext(connection) as queries:
            found = read_items(10)
        assert not queries.captured_queries
        make_event()
        assert len(read_items(10)) == 3  # once only

    assert found == expected and [item.event_id for item in found] == [earlier.pk, later.pk]


def test_it_does_not_serve_another_limit_or_a_read_that_leaves_events_out_or_one_after_the_block() -> None:
    earlier, later = make_event(), make_event()

    def read_ahead() -> None:
        with one_trip(begins=False) as trip:
            ask(trip)

    with reading_ahead(10) as ask:
        read_ahead()
        assert [item.event_id for item in read_items(1)] == [earlier.pk]
        read_ahead()
        assert [item.event_id for item in read_items(10, [earlier.pk])] == [later.pk]
        read_ahead()
    newest = make_event()
    assert [item.event_id for item in read_items(10)] == [earlier.pk, later.pk, newest.pk]


def test_where_it_was_not_answered_the_events_are_read_as_usual() -> None:
    event = make_event()
    with reading_ahead(10) as ask:
        with one_trip(begins=False) as trip:
            ask(trip)
            trip._asked.clear()  # such as after an error of an earlier statement
        assert [item.event_id for item in read_items(10)] == [event.pk]
