"""The dispatcher's chores: all of them are listed, each is done when a look finds it due, and an idle look finds none."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest

from runs.chores import timers
from runs.chores.chores import Chores
from runs.chores.rare import Rare
from runs.chores.timers import RunTimers
from runs.ports import ports
from runs.waits import Woken

NAMES = [
    "end waits",
    "look back",
    "wake runs",
    "mend keys",
    "hand over sessions",
    "budgets",
    "hand back requests",
    "tell incidents",
    "deliver messages",
    "rescue runs",
]
IDLE = RunTimers(
    ready=False, lost=False, due=None, wait=None, look_back=None, inside={}, outside=None, slow=None, lease_expiry=None
)
NOTHING = Rare(budget_waits=False, reservations=False, requests=False, incidents=False, blocked=False)
NOW = timedelta()


def due_of(look: RunTimers) -> list[str]:
    return [chore.name for chore in Chores() if chore.is_due(look)]


def test_the_chores_are_these_in_this_order() -> None:
    assert [chore.name for chore in Chores()] == NAMES


@pytest.mark.parametrize(
    ("look", "due"),
    [
        (IDLE, []),
        (replace(IDLE, wait=NOW), ["end waits"]),
        (replace(IDLE, look_back=NOW), ["look back"]),
        (replace(IDLE, due=NOW), ["wake runs"]),
        (replace(IDLE, inside={"event": NOW}), ["deliver messages"]),
        (replace(IDLE, free_session=True), ["hand over sessions"]),
        (replace(IDLE, lost=True), ["rescue runs"]),
        (replace(IDLE, lease_expiry=NOW), ["rescue runs"]),
        (replace(IDLE, rare=NOTHING), []),
        (replace(IDLE, rare=replace(NOTHING, blocked=True)), ["mend keys"]),
        (replace(IDLE, rare=replace(NOTHING, budget_waits=True)), ["budgets"]),
        (replace(IDLE, rare=replace(NOTHING, reservations=True)), ["budgets"]),
        (replace(IDLE, rare=replace(NOTHING, requests=True)), ["hand back requests"]),
        (replace(IDLE, rare=replace(NOTHING, incidents=True)), ["tell incidents"]),
        (replace(IDLE, wait=timedelta(seconds=1), due=timedelta(hours=1), inside={"event": timedelta(days=1)}), []),
    ],
)
def test_a_chore_is_due_where_the_look_found_work_for_it(look: RunTimers, due: list[str]) -> None:
    assert due_of(look) == due


def test_where_the_look_itself_fails_every_chore_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ports.inside, "event", lambda payloads: None)

    assert [chore.name for chore in Chores() if chore.is_due(timers.everything_is_due())] == NAMES


def test_keys_are_mended_once_a_minute() -> None:
    chores = Chores()
    [mend] = [chore for chore in chores if chore.name == "mend keys"]
    chores.mend_at = time.monotonic() + 60

    assert not mend.is_due(replace(IDLE, rare=replace(NOTHING, blocked=True)))


@pytest.mark.django_db
def test_every_chore_can_be_done_where_there_is_nothing_to_do() -> None:
    assert [chore.do(timers.everything_is_due()) for chore in Chores()] == [Woken()] * len(NAMES)
