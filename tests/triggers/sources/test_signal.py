"""Signals: events for one run, which it may wait for."""

from uuid import uuid4

import pytest

from agents.journal.canonical import match_of
from runs.actions.signal import signal
from runs.exceptions import IllegalState
from runs.models import Run, Wait
from runs.waits import look_back
from tests.support.journals import make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.dispatch.batch import dispatch
from triggers.dispatch.rules import Rules
from triggers.models import Event

pytestmark = pytest.mark.django_db


def waiting_for(name: str, run: Run) -> Wait:
    match = {"run": str(run.id), "name": name}
    shape, digest = match_of(match)
    return make_wait(run, "event", event_type="run.signal", match=match, match_shape=shape, match_hash=digest)


def make_waiting_run() -> Run:
    return make_run(status="waiting", event_id=make_event().id)


def test_a_signal_is_an_event_about_the_run() -> None:
    run = make_waiting_run()

    event_id = signal(run.id, name="paid", data={"amount": 3}, by="ada")

    event = Event.objects.get(pk=event_id)
    assert (event.type, event.subject, event.ce_source) == ("run.signal", str(run.id), "ada")
    assert event.data == {"run": str(run.id), "name": "paid", "data": {"amount": 3}}
    assert (event.root_id, event.chain) == (event.id, [])


def test_a_signal_wakes_the_run_that_waits_for_it_and_no_other() -> None:
    run, other = make_waiting_run(), make_waiting_run()
    wait, elsewhere, unnamed = waiting_for("paid", run), waiting_for("paid", other), make_waiting_run()
    waiting_for("shipped", unnamed)

    event_id = signal(run.id, name="paid", by="ada")
    dispatch(Rules())

    wait.refresh_from_db()
    elsewhere.refresh_from_db()
    assert (wait.status, wait.event_id, elsewhere.status) == ("done", event_id, "open")
    assert [Run.objects.get(pk=one.pk).status for one in (run, other, unnamed)] == ["queued", "waiting", "waiting"]


def test_a_signal_that_comes_before_the_run_waits_is_not_missed() -> None:
    run = make_waiting_run()
    signal(run.id, name="paid", by="ada")
    dispatch(Rules())
    waiting_for("paid", run)

    assert look_back(run.id) == 1


def test_a_run_that_has_finished_gets_no_signal() -> None:
    run = make_run(status="succeeded")

    with pytest.raises(IllegalState, match="succeeded"):
        signal(run.id, name="paid", by="ada")
    with pytest.raises(Run.DoesNotExist):
        signal(uuid4(), name="paid", by="ada")
    assert not Event.objects.exists()
