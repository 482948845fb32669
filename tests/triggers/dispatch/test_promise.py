"""When the dispatcher promises to look: while changes of watched tables come faster than it looks, and no longer than it does."""

from collections.abc import Iterator
from unittest.mock import patch

import pytest

from triggers.dispatch import promise
from triggers.dispatch.promise import CHANGES, KEEP_LOOKING, LOOK_EVERY, UNDER_WAY, Promise

NEWS, SILENCE = True, False
UNDER_WAY_STILL, NONE_UNDER_WAY = [(False,)], [(True,)]


@pytest.fixture
def clock() -> Iterator[list[float]]:
    now = [100.0]
    with patch("time.monotonic", lambda: now[0]):
        yield now


def after_look(
    kept: Promise, has_news: bool, *answers: object, leads: bool = True, has_changes: bool | None = None
) -> tuple[float | None, list[str]]:
    """The seconds that it owes, and what it has sent."""
    names = {promise.MAKE: "made", promise.WITHDRAW: "withdrawn"}
    with patch.object(promise, "fetch", side_effect=[*answers]) as fetch:
        owed = kept.after_look(
            has_news=has_news,
            has_changes=has_news if has_changes is None else has_changes,
            leads=leads,
            stands_by=not leads,
        )
    return owed, [names[call.args[0]] for call in fetch.call_args_list]


def closed() -> Promise:
    kept = Promise()
    kept.is_open = False
    return kept


def test_one_change_makes_no_promise_but_the_look_after_the_next_does(clock: list[float]) -> None:
    kept = closed()

    assert after_look(kept, NEWS) == (None, [])
    assert after_look(kept, SILENCE) == (None, [])
    assert after_look(kept, NEWS, []) == (LOOK_EVERY, ["made"])
    assert after_look(kept, NEWS) == (LOOK_EVERY, [])  # it holds for a while
    clock[0] += KEEP_LOOKING
    assert after_look(kept, SILENCE, UNDER_WAY_STILL) == (UNDER_WAY, ["withdrawn"])
    assert after_look(kept, SILENCE, NONE_UNDER_WAY) == (0.0, ["withdrawn"])  # one more look
    assert after_look(kept, SILENCE) == (None, [])


def test_events_that_are_no_changes_of_watched_tables_make_none(clock: list[float]) -> None:
    kept = closed()

    for _ in range(10):
        assert after_look(kept, NEWS, has_changes=False) == (None, [])


def test_it_is_withdrawn_among_other_news_when_changes_have_ended(clock: list[float]) -> None:
    kept = closed()
    after_look(kept, NEWS)
    assert after_look(kept, NEWS, []) == (LOOK_EVERY, ["made"])

    for _ in range(40):
        clock[0] += CHANGES / 50
        after_look(kept, NEWS, [], has_changes=False)
    assert kept.is_open
    clock[0] += CHANGES / 2
    assert after_look(kept, NEWS, NONE_UNDER_WAY, has_changes=False) == (0.0, ["withdrawn"])
    assert after_look(kept, NEWS, has_changes=False) == (None, [])


def test_a_stand_by_makes_none_and_withdraws_the_leaders_when_it_leads(clock: list[float]) -> None:
    kept = closed()

    assert after_look(kept, SILENCE, leads=False) == (None, [])
    assert after_look(kept, SILENCE, NONE_UNDER_WAY) == (0.0, ["withdrawn"])
