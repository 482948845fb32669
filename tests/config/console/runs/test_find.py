"""The box above runs and events finds them by what people know of them."""

from uuid import UUID, uuid4

import pytest
from django.test import Client

from agents.kernel.redaction import know
from config.console.parts import panel
from config.console.runs import find
from tests.config.console.conftest import LogIn
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


def test_a_subject_or_a_key_that_is_a_uuid_finds_its_runs(admin: Client) -> None:
    subject, key, trigger = str(uuid4()), str(uuid4()), uuid4()
    about = make_run(event_id=make_event(subject=subject).pk)
    keyed = make_run(trigger="sync", status="succeeded", key=f"{trigger}:{key}", trigger_id=trigger)

    assert (found(admin, subject), found(admin, key)) == ({about.pk}, {keyed.pk})


def test_a_secret_in_an_error_is_not_found_by_a_part_of_it(admin: Client) -> None:
    run = make_run(trigger="sync", status="failed", error="the depot refused Kaufmann-77-of-the-depot")
    know("Kaufmann-77-of-the-depot")  # after the error was stored

    assert found(admin, "kaufmann-7") == found(admin, "Kaufmann-77-of-the-depot") == set()
    assert found(admin, "the depot refused") == {run.pk}


def test_who_may_not_see_events_finds_no_run_by_the_data_of_its_event(log_in: LogIn) -> None:
    run = make_run(event_id=make_event(data={"iban": "DE89"}).pk)
    bob = log_in("runs.view_run", name="bob")
    both = log_in("runs.view_run", "triggers.view_event", name="both")

    assert (found(both, "data.iban=DE89"), found(bob, "data.iban=DE89")) == ({run.pk}, set())
    listed = bob.get(list_of("runs_run"), {"field": "iban=DE89"})
    assert not listed.context["cl"].result_list
    assert "You may not see the data of events" in listed.content.decode()
    kinds = bob.get("/admin/find/", {"q": "data.iban=DE89"}).context["kinds"]
    assert "Runs" not in [kind.title for kind in kinds]


@pytest.mark.parametrize("asked", ["error__contains", "error__regex", "input__token__startswith", "status__regex"])
def test_an_address_asks_for_no_part_of_a_text(admin: Client, asked: str) -> None:
    make_run(status="failed", error="the key kaufmann-77", input={"token": "kaufmann-77"})

    assert admin.get(list_of("runs_run"), {asked: "k"}).status_code == 400
    for whole in ({"status__exact": "failed"}, {"trigger": "greeter"}, {"worker__id__exact": str(uuid4())}):
        assert admin.get(list_of("runs_run"), whole).status_code == 200


@pytest.mark.parametrize(
    "noun, asked",
    [
        ("runs_run", "attempts"),
        ("runs_run", "waits__id__exact"),
        ("runs_run", "log"),
        ("runs_run", "steps"),
        ("runs_run", "input"),
        ("runs_run", "input__id"),
        ("runs_run", "result__id__exact"),
        ("triggers_event", "decisions"),
        ("triggers_event", "body"),
        ("triggers_event", "data__id"),
    ],
)
def test_an_address_asks_for_no_other_table_and_no_bytes_or_data(admin: Client, noun: str, asked: str) -> None:
    assert admin.get(list_of(noun), {asked: "1"}).status_code == 400


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
