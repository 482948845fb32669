"""The look at all other work is put off while single events are dispatched, but never for long."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from django.db import connection

from tests.support.triggers import make_event, make_trigger
from triggers.dispatch.late import AT_MOST, Late
from triggers.dispatch.looks import Seen
from triggers.dispatch.loop import Dispatcher
from triggers.models import Event


@pytest.fixture
def clock() -> Iterator[list[float]]:
    now = [100.0]
    with patch("time.monotonic", lambda: now[0]):
        yield now


def test_a_look_is_put_off_until_the_first_event_was_dispatched_too_long_ago(clock: list[float]) -> None:
    late = Late()
    late.looked(60)

    assert late.may_wait()
    clock[0] += AT_MOST - 0.01
    assert late.may_wait()
    clock[0] += 0.02
    assert not late.may_wait()

    late.looked(60)
    assert late.may_wait()


def test_what_was_due_at_a_certain_time_is_still_due_then(clock: list[float]) -> None:
    late = Late()
    assert late.wait == 0.0

    late.looked(0.02)
    clock[0] += 0.015
    assert late.wait == pytest.approx(0.005)


@pytest.mark.django_db(transaction=True)
def test_a_dispatcher_that_is_woken_for_single_events_looks_at_the_rest_in_time(clock: list[float]) -> None:
    make_trigger()
    dispatcher = Dispatcher()
    dispatcher.leadership.begin()
    dispatcher.look()
    dispatcher.look()  # its alarms are ended, its switches armed
    seen = list[float]()
    look = dispatcher.looks.look

    def noted(**options: Any) -> Seen:
        seen.append(clock[0])
        return look(**options)

    with patch.object(dispatcher.looks, "look", noted):
        for _ in range(12):
            make_event()
            dispatcher.is_urgent = True
            dispatcher.look()
            clock[0] += 0.01

    assert not Event.objects.filter(dispatched_at=None).exists()
    assert 1 <= len(seen) <= 3 and all(
        later - one <= AT_MOST + 0.02 for one, later in zip(seen, seen[1:], strict=False)
    )
    dispatcher.leadership.release()
    connection.close()
