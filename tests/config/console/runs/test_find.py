"""The box above runs and events finds them by what people know of them."""

from uuid import UUID, uuid4

import pytest
from django.test import Client

from agents.kernel.redaction import know
from config.console.parts import panel
from config.console.runs import find
from tests.support.console import list_of
from tests.support.runs import make_run
from tests.support.triggers import make_event


def found(client: Client, term: str, noun: str = "runs_run") -> set[UUID]:
    return {row.pk for row in client.get(list_of(noun), {"q": term}).context["cl"].result_list}


def test_runs_are_found_by_subject_key_error_agent_trigger_and_the_beginning_of_an_id(admin: Client) -> None:
    make_run(trigger="other")
    event = make_event(subject="A-312")
    trigger = uuid4()
    run = make_run(
        event_id=event.pk,
        trigger="fulfil",
        agent="picker",
        status="succeeded",
        key=f"{trigger}:Ada:x",
        trigger_id=trigger,
    )
    bad = make_run(trigger="sync", status="failed", error="ConnectionError: depot is away")

    assert (
        found(admin, "A-312") == found(admin, "Ada:x") == found(admin, "picker") == found(admin, "fulfil") == {run.pk}
    )
    assert found(admin, "connectionerror") == {bad.pk}
    assert found(admin, str(run.pk)[:30]) == found(admin, str(run.pk)) == found(admin, str(event.pk)) == {run.pk}
    assert found(admin, "312") == found(admin, "%") == set()


def test_a_secret_in_an_error_is_not_found_by_a_part_of_it(admin: Client) -> None:
    run = make_run(trigger="sync", status="failed", error="the depot refused Kaufmann-77-of-the-depot")
    know("Kaufmann-77-of-the-depot")  # after the error was stored

    assert found(admin, "kaufmann-7") == found(admin, "Kaufmann-77-of-the-depot") == set()
    assert found(admin, "the depot refused") == {run.pk}


def test_agents_keys_and_errors_are_looked_for_in_the_newest_rows_and_the_box_says_so(
    admin: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(find, "NEWEST", 0)
    monkeypatch.setattr(find, "FAILED", 0)
    make_run(agent="picker", trigger="fulfil", status="failed", error="ConnectionError")

    assert found(admin, "picker") == found(admin, "ConnectionError") == set()
    assert len(found(admin, "fulfil")) == 1
    page = admin.get(list_of("runs_run")).content.decode()
    assert "newest 25,000 runs" in page and "newest 10,000 failed runs" in page


def test_events_are_found_by_their_subject_however_old(admin: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel, "LOOKED_THROUGH", 1)
    event = make_event(subject="B-77")
    make_event(subject="B-78")

    assert found(admin, "B-77", "triggers_event") == {event.pk}


def test_the_list_of_runs_shows_what_each_is_about(admin: Client) -> None:
    make_run(event_id=make_event(subject="A-312").pk)

    assert "A-312" in admin.get(list_of("runs_run")).content.decode()
