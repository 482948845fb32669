"""Failures with one cause become one incident, reported once; the success of the same thing closes it."""

from datetime import timedelta
from typing import Any

import pytest

from runs.incidents import note as notes
from runs.incidents.cause import OTHER
from runs.incidents.note import MOST_CAUSES, Failed, Succeeded, note
from runs.models import CoveredRun, Incident, Notification
from tests.support.incidents import HOUR, NO, fail, notification_texts, pass_by, succeed, thing

pytestmark = [pytest.mark.sampled, pytest.mark.django_db]


def the_incident() -> Incident:
    return Incident.objects.get()


def test_one_failure_is_noticed_without_a_notification() -> None:
    fail()

    assert (the_incident().status, notification_texts()) == ("noticed", [])


def test_the_second_opens_it_and_notifies_people_once() -> None:
    fail(20)

    incident = the_incident()
    assert (incident.status, incident.count, incident.in_a_row) == ("open", 20, 20)
    assert CoveredRun.objects.filter(incident=incident).count() == 20
    assert notification_texts() == ["Trigger greeter: 2 failed runs in a row. ConnectionError: no answer"]
    told_of = Notification.objects.get()
    assert (told_of.topic, told_of.link) == (f"incident:{incident.pk}", f"incident:{incident.pk}")
    assert (told_of.urgency, told_of.sender) == ("normal", "greeter")


def test_a_success_closes_it_with_one_all_clear() -> None:
    fail(3)

    succeed()
    succeed()

    incident = the_incident()
    assert (incident.status, incident.count, incident.in_a_row) == ("closed", 3, 0)
    assert len(notification_texts()) == 2
    assert notification_texts()[1].startswith("Trigger greeter succeeds again, after ")
    assert Notification.objects.latest("id").urgency == "low"


def test_a_success_between_ends_what_was_only_noticed() -> None:
    for _ in range(5):
        fail()
        succeed()

    assert not Incident.objects.exists()
    assert not CoveredRun.objects.exists()
    assert not notification_texts()


def test_outcomes_of_one_batch_count_in_their_order() -> None:
    failed, succeeded = Failed(thing=thing(), error=NO), Succeeded(thing=thing())

    note([failed, succeeded, failed])
    assert the_incident().status == "noticed"

    note([failed, succeeded, failed, failed, succeeded, failed])
    incident = the_incident()
    assert (incident.status, incident.reopened, incident.count, incident.in_a_row) == ("closed", 1, 5, 1)


def test_a_success_closes_only_the_incident_of_its_trigger() -> None:
    fail(2)
    fail(2, name="other")
    succeed("other")

    assert Incident.objects.get(subject="greeter").status == "open"
    assert Incident.objects.get(subject="other").status == "closed"


def test_two_causes_are_two_incidents_even_if_they_alternate() -> None:
    for _ in range(2):
        fail(error="KeyError: 'a'")
        fail(error="ValueError: 12")

    found = {one.cause: (one.status, one.count) for one in Incident.objects.all()}
    assert found == {"KeyError: '…'": ("open", 2), "ValueError: #": ("open", 2)}


def test_a_trigger_has_a_few_causes_and_the_rest_are_counted_together() -> None:
    for n in range(100):
        fail(error=f"Error{'abcdefghij'[n // 10]}{'abcdefghij'[n % 10]}: no")

    assert Incident.objects.count() == MOST_CAUSES + 1
    rest = Incident.objects.get(cause=OTHER)
    assert (rest.status, rest.count) == ("open", 100 - MOST_CAUSES)
    assert len(notification_texts()) == 1


@pytest.mark.parametrize(("after", "opens_at"), [(1, 1), (3, 3), (0, None)])
def test_the_number_of_failures_is_an_option(after: int, opens_at: int | None) -> None:
    for n in range(1, 5):
        fail(after=after)
        assert (the_incident().status == "open") == (opens_at is not None and n >= opens_at)


def test_an_urgent_trigger_opens_with_an_urgent_notification() -> None:
    fail(2, urgency="high")
    succeed()

    assert list(Notification.objects.order_by("id").values_list("urgency", flat=True)) == ["high", "low"]


# Flapping


def test_failures_within_the_cooldown_reopen_the_same_incident() -> None:
    fail(2)
    succeed()

    for _ in range(10):
        pass_by(timedelta(minutes=1))
        fail(2)
        succeed()

    incident = the_incident()
    assert (incident.status, incident.reopened, incident.count) == ("closed", 10, 22)
    assert len(notification_texts()) == 2  # it opened; it is over, and so it is now


def test_people_learn_within_the_cooldown_that_it_fails_again() -> None:
    from runs.incidents.tell import tell_due

    fail(2)
    succeed()
    fail(2)
    assert len(notification_texts()) == 2

    pass_by(timedelta(minutes=59))
    assert not tell_due()
    pass_by(timedelta(minutes=1))
    assert tell_due()

    assert notification_texts()[2].startswith("Trigger greeter fails again: 4 failed runs in all.")
    succeed()
    pass_by(HOUR)
    tell_due()
    assert notification_texts()[3].startswith("Trigger greeter succeeds again")
    assert not tell_due()


def test_a_failure_after_the_cooldown_is_a_new_incident() -> None:
    fail(2)
    succeed()
    pass_by(HOUR)

    fail(2)

    assert [one.status for one in Incident.objects.order_by("id")] == ["closed", "open"]
    assert len(notification_texts()) == 3


# Cost


def test_successes_cost_one_query_and_no_lock(django_assert_num_queries: Any) -> None:
    fail(2, name="other")

    with django_assert_num_queries(1):
        note([Succeeded(thing=thing(f"greeter-{n}")) for n in range(500)])


def test_ten_thousand_failed_runs_are_one_incident(django_assert_max_num_queries: Any) -> None:
    from uuid import uuid4

    for _ in range(20):
        with django_assert_max_num_queries(20):
            note([Failed(thing=thing(), error=NO, run_id=uuid4(), is_covered=True) for _ in range(500)])

    assert (the_incident().count, the_incident().covered.count()) == (10_000, 10_000)
    assert len(notification_texts()) == 1


def test_few_of_the_incidents_that_may_open_again_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MOST_CLOSED", 3)
    for letter in "abcdefgh":
        fail(2, error=f"Error {letter}")
        succeed()

    assert len(notes._current([thing().key])) == 3
    fail(2, error="Error h")
    assert Incident.objects.get(cause="Error h").status == "open"


@pytest.mark.parametrize("many", [1_000, pytest.param(10_000, marks=pytest.mark.chaos)])
def test_thousands_of_causes_are_few_messages_and_one_alarm(settings: Any, many: int) -> None:
    from config.health.alarms import update_alarms
    from runs.models import Alarm

    for start in range(0, many, 500):
        note([Failed(thing=thing(f"t{n}"), error=NO) for n in range(start, start + 500) for _ in range(2)])
    update_alarms()

    assert Incident.objects.count() == many
    assert (
        len([text for text in notification_texts() if "failed runs in a row" in text])
        == settings.WAKEFUL_INCIDENT_MESSAGES
    )
    alarm = Alarm.objects.get(name="many-incidents")
    assert alarm.text.startswith(f"{many - 20:,} more incidents have opened in the last hour")

    note([Succeeded(thing=thing(f"t{n}")) for n in range(many)])
    update_alarms()
    alarm.refresh_from_db()
    assert alarm.ended_at
    assert (
        len([text for text in notification_texts() if "succeeds again" in text]) == settings.WAKEFUL_INCIDENT_MESSAGES
    )
