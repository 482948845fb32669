"""Turns of sessions and notes of memories: how long they are kept, and what an erasure leaves of them."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from agents.models import MemoryNote, Session, SessionTurn
from config.retention import prune
from runs.models import Step, Wait
from runs.retention.erasure import erase_runs
from runs.states import RunStatus
from tests.support.journals import make_step, make_wait
from tests.support.old_rows import ago
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db


def make_session(name: str, *, used: float, turns: dict[int, float], **fields: Any) -> Session:
    """`turns`: how many days old each turn is, by its number."""
    session = Session.objects.create(name=name, used_at=ago(days=used), summary="s", **fields)
    for number, days in turns.items():
        make_turn(session, number, uuid4(), at=ago(days=days))
    return session


def make_turn(session: Session, number: int, run: UUID, **fields: Any) -> SessionTurn:
    turn: dict[str, Any] = {"messages": [{"said": "x"}], "characters": 12, **fields}
    return SessionTurn.objects.create(session=session, number=number, run_id=run, agent="a", **turn)


def left() -> dict[str, list[int]]:
    return {session.name: [turn.number for turn in session.turns.all()] for session in Session.objects.order_by("name")}


def test_old_turns_go_and_a_session_that_is_not_used_goes_with_them(settings: Any) -> None:
    settings.WAKEFUL_KEEP_PAYLOADS = timedelta(days=30)
    make_session("held", used=40, turns={}, run_id=make_run(status=RunStatus.WAITING).id)
    make_session("left", used=40, turns={}, run_id=make_run(status=RunStatus.FAILED).id)
    make_session("old", used=40, turns={1: 41, 2: 40})
    make_session("used", used=1, turns={1: 40, 2: 1})
    make_session("wanted", used=40, turns={})
    make_wait(make_run(status=RunStatus.WAITING), "session", asked={"session": "wanted"})
    MemoryNote.objects.create(agent="a", key="k", text="x", updated_at=ago(days=400))

    prune()

    assert left() == {"held": [], "used": [2], "wanted": []}
    assert MemoryNote.objects.exists()


def test_an_erasure_takes_the_turns_of_a_run_and_those_that_were_given_them() -> None:
    run, live = make_run(status=RunStatus.SUCCEEDED), make_run(status=RunStatus.WAITING)
    first = make_session("first", used=0, turns={1: 0, 3: 0})
    make_turn(first, 2, run.id)
    second = make_session("second", used=0, turns={2: 0})
    make_turn(second, 1, live.id)
    for key, whose in {"mine": run.id, "live": live.id, "other": uuid4()}.items():
        MemoryNote.objects.create(agent="a", key=key, text="x", run_id=whose)

    erase_runs([run.id, live.id])

    assert left() == {"first": [1], "second": [1, 2]}
    assert {session.summary for session in Session.objects.all()} == {"s"}
    assert set(MemoryNote.objects.values_list("key", flat=True)) == {"live", "other"}


def test_an_erasure_takes_a_summary_that_includes_a_turn_of_the_run() -> None:
    run = make_run(status=RunStatus.SUCCEEDED)
    session = make_session("ops", used=0, turns={2: 0})
    make_turn(session, 1, run.id, messages=None, is_summarised=True)

    erase_runs([run.id])

    assert left() == {"ops": []}
    assert Session.objects.get().summary == ""


def test_an_erasure_takes_a_summary_that_includes_a_turn_behind_one_of_the_run() -> None:
    run = make_run(status=RunStatus.SUCCEEDED)
    session = make_session("ops", used=0, turns={3: 0})
    make_turn(session, 1, run.id, messages=None)  # dropped, but the second was given it
    make_turn(session, 2, uuid4(), messages=None, is_summarised=True)

    erase_runs([run.id])

    assert left() == {"ops": []}
    assert (Session.objects.get().summary, Session.objects.get().revision) == ("", 1)


def test_the_row_of_a_summarised_turn_stays_while_the_summary_is_used(settings: Any) -> None:
    settings.WAKEFUL_KEEP_PAYLOADS, settings.WAKEFUL_KEEP_RUNS = timedelta(days=30), timedelta(days=90)
    session = make_session("used", used=1, turns={3: 40})
    make_turn(session, 1, uuid4(), messages=None, is_summarised=True, at=ago(days=91))
    make_turn(session, 2, uuid4(), messages=None, is_summarised=True, at=ago(days=40))
    old = make_session("old", used=40, turns={})
    make_turn(old, 1, uuid4(), messages=None, is_summarised=True, at=ago(days=40))

    prune()

    assert left() == {"used": [2]}


def test_an_erasure_takes_the_keys_of_notes_and_the_names_of_sessions_from_journals() -> None:
    run = make_run(status=RunStatus.SUCCEEDED)
    for position, key in enumerate(("note ada@home#1", "put note ada@home:1#1", "delete note ada#1", "denote ada")):
        make_step(run, key, position=position)
    make_wait(run, "session", status="done", asked={"session": "ada", "reason": "ada"})

    erase_runs([run.id])

    keys = ["note (erased)#0", "put note (erased)#1", "delete note (erased)#2", "denote ada"]
    assert list(Step.objects.filter(run=run).order_by("position").values_list("key", flat=True)) == keys
    assert Wait.objects.get(run=run).asked is None
