"""Acknowledged, muted and escalated incidents: who gets which message, and what ends a mute."""

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from config.health.doctor import processes
from runs.actions.incidents import acknowledge_incident, close_incident, mute_incident, unmute_incident
from runs.db.patience import statements_take
from runs.exceptions import IllegalState
from runs.incidents import note as notes
from runs.incidents.lock import LOCK, SPACE
from runs.incidents.mutes import end_mutes
from runs.incidents.tell import tell_due
from runs.models import AuditEntry, Incident, Notification
from tests.support.console import make_worker
from tests.support.incidents import HOUR, fail, notification_texts, pass_by, succeed
from tests.support.late import session

pytestmark = [pytest.mark.sampled, pytest.mark.django_db]
DAY = timedelta(days=1)


def the_incident() -> Incident:
    return Incident.objects.get()


def mute(until: str) -> None:
    mute_incident(the_incident().pk, until=until, by="ada", note="waits for 2.1")


# Acknowledged


def test_who_acknowledged_it_when_and_why_is_kept() -> None:
    fail(2)

    acknowledge_incident(the_incident().pk, by="ada", note="the disk")

    incident = the_incident()
    assert (incident.acknowledged_by, incident.acknowledged_note) == ("ada", "the disk")
    assert incident.acknowledged_at is not None and incident.status == "open"
    assert AuditEntry.objects.get(kind="incident").action == "acknowledge"
    with pytest.raises(IllegalState, match="acknowledged by ada already"):
        acknowledge_incident(incident.pk, by="bob")


def test_an_acknowledged_incident_that_flaps_sends_nothing_until_it_stays_closed() -> None:
    fail(2)
    acknowledge_incident(the_incident().pk, by="ada")
    for _ in range(5):
        succeed()
        fail(2)
        pass_by(HOUR / 2)
        tell_due()
    assert len(notification_texts()) == 1

    succeed()
    pass_by(HOUR * 1.1)
    tell_due()

    assert len(notification_texts()) == 2
    assert notification_texts()[1].startswith("Trigger greeter succeeds again")


def test_an_incident_that_is_over_is_neither_acknowledged_nor_muted() -> None:
    fail(2)
    succeed()

    with pytest.raises(IllegalState, match="is closed; only one that fails can be acknowledged"):
        acknowledge_incident(the_incident().pk, by="ada")
    with pytest.raises(IllegalState, match="is closed; only one that fails can be muted"):
        mute("8h")


# Muted


@pytest.mark.parametrize("until", ["version", "8h", "closed", "9998-12-31T23:59+01:00"])
def test_a_muted_cause_sends_no_message_and_is_still_counted(until: str) -> None:
    make_worker(version="2.0")
    fail(2)
    mute(until)

    fail(20)
    tell_due()

    incident = the_incident()
    assert (incident.status, incident.count, incident.covered.count()) == ("open", 22, 22)
    assert len(notification_texts()) == 1
    succeed()
    tell_due()
    assert len(notification_texts()) == 1


def test_other_causes_of_the_thing_are_not_muted() -> None:
    fail(2)
    mute("closed")

    fail(2, error="KeyError: 'iban'")

    assert notification_texts()[1] == "Trigger greeter: 2 failed runs in a row. KeyError: 'iban'"


def test_what_stands_for_several_causes_cannot_be_muted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "MOST_CAUSES", 1)
    fail(2)
    fail(2, error="KeyError: 1")
    other = Incident.objects.get(cause="other causes")

    with pytest.raises(IllegalState, match="counts several causes together"):
        mute_incident(other.pk, until="8h", by="ada")


@pytest.mark.parametrize("until", ["", "soon", "-1h", "0s", "2020-01-01T00:00Z", "2050-01-01T00:00", "99999999d"])
def test_a_mute_with_an_invalid_end_is_refused(until: str) -> None:
    fail(2)

    with pytest.raises(ValueError):
        mute(until)


def test_a_mute_until_the_next_version_ends_when_a_worker_starts_with_another_one() -> None:
    make_worker(version="2.0")
    make_worker(version="2.1", kind="worker")  # a deploy is under way
    fail(2)
    mute("version")
    assert the_incident().muted_versions == ["2.0", "2.1"]

    assert [end_mutes("2.0"), end_mutes("2.1")] == [0, 0]
    assert end_mutes("2.2") == 1

    assert not the_incident().is_muted
    assert AuditEntry.objects.get(action="unmute").by == "wakeful"
    assert len(notification_texts()) == 1
    fail(1)  # the new version did not mend it
    assert notification_texts()[1].startswith("Trigger greeter: 3 failed runs in a row")


@pytest.mark.django_db(transaction=True)
def test_a_worker_starts_although_a_frozen_process_holds_the_lock_of_incidents() -> None:
    make_worker(version="2.0")
    fail(2)
    mute("version")

    with session() as frozen, statements_take(timedelta(seconds=20)):
        frozen.execute(LOCK, [SPACE])
        assert end_mutes("2.1") is None

    assert the_incident().is_muted
    assert end_mutes("2.1") == 1  # when this worker tries again


def test_without_a_worker_the_next_version_is_unknown() -> None:
    fail(2)
    with pytest.raises(ValueError, match="no worker has run yet"):
        mute("version")

    make_worker(version="2.0", stopped_at=timezone.now())
    mute("version")

    assert the_incident().muted_versions == ["2.0"]


def test_a_version_that_mends_it_sends_nothing() -> None:
    make_worker(version="2.0")
    fail(2)
    mute("version")
    end_mutes("2.1")

    succeed()
    pass_by(HOUR * 2)
    tell_due()

    assert len(notification_texts()) == 1


def test_a_mute_for_a_time_ends_by_itself_and_what_is_open_is_a_message() -> None:
    fail(2)
    mute("8h")
    pass_by(HOUR * 8.1)

    assert tell_due() == 1
    assert (the_incident().is_muted, len(notification_texts())) == (False, 1)

    pass_by(HOUR * 1.1)  # no failure, and no success
    tell_due()
    assert len(notification_texts()) == 2


def test_a_mute_until_it_is_closed_ends_with_its_success() -> None:
    fail(2)
    mute("closed")
    succeed()
    assert not the_incident().is_muted

    pass_by(HOUR * 1.1)
    fail(2)

    assert len(notification_texts()) == 2


def test_a_cause_that_fails_again_long_after_is_the_same_incident_and_still_muted() -> None:
    fail(2)
    acknowledge_incident(the_incident().pk, by="ada")
    mute("30d")
    succeed()
    pass_by(DAY)

    fail(2)

    incident = the_incident()
    assert (incident.status, incident.reopened, incident.is_muted) == ("open", 1, True)
    assert incident.acknowledged_at is None
    assert len(notification_texts()) == 1


def test_a_person_ends_a_mute() -> None:
    fail(2)
    mute("closed")

    unmute_incident(the_incident().pk, by="bob")

    assert [entry.action for entry in AuditEntry.objects.filter(kind="incident").order_by("id")] == ["mute", "unmute"]
    with pytest.raises(IllegalState, match="is not muted"):
        unmute_incident(the_incident().pk, by="bob")


def test_only_the_newest_incident_of_a_cause_can_be_muted() -> None:
    fail(2)
    succeed()
    pass_by(HOUR * 2)
    fail(2)
    older = Incident.objects.earliest("id")
    Incident.objects.filter(pk=older.pk).update(last_at=timezone.now())

    with pytest.raises(IllegalState, match="is not the newest of its cause"):
        mute_incident(older.pk, until="8h", by="ada")


def test_doctor_counts_muted_and_acknowledged_incidents_apart() -> None:
    def said() -> list[str]:
        return [finding.text for finding in processes() if "incident" in finding.text]

    fail(2)
    mute("closed")
    assert said() == ["1 muted incident sends no messages"]

    fail(2, error="KeyError: 'iban'")
    acknowledge_incident(Incident.objects.latest("id").pk, by="ada")

    assert said()[0] == "1 incident is open: trigger greeter. 1 acknowledged. 1 muted."


# Escalated


@pytest.fixture
def steps(settings: Any) -> list[str]:
    settings.WAKEFUL_ESCALATE_TO = ["lead", "board"]
    settings.WAKEFUL_ESCALATE_AFTER = timedelta(minutes=30)
    return ["lead", "board"]


def escalations() -> list[str]:
    return [one.to[0] for one in Notification.objects.order_by("id") if one.to]


def wait(minutes: int) -> None:
    pass_by(timedelta(minutes=minutes))
    tell_due()


def test_an_urgent_incident_that_no_person_acknowledges_goes_to_each_step_once(steps: list[str]) -> None:
    fail(2, urgency="high")
    tell_due()
    assert escalations() == []

    for _ in range(6):
        wait(31)
        tell_due()

    assert escalations() == steps
    escalated = Notification.objects.exclude(to=[]).earliest("id")
    assert escalated.urgency == "high"
    assert escalated.text.startswith("Not acknowledged for 31 min. Trigger greeter: 2 failed runs in a row")


@pytest.mark.parametrize("urgency", ["normal", "low"])
def test_what_is_not_urgent_is_not_escalated(steps: list[str], urgency: str) -> None:
    fail(2, urgency=urgency)
    wait(31)

    assert escalations() == []


@pytest.mark.parametrize(
    "act",
    [
        lambda pk: acknowledge_incident(pk, by="ada"),
        lambda pk: mute_incident(pk, until="closed", by="ada"),
        lambda pk: close_incident(pk, by="ada"),
        lambda pk: succeed(),
    ],
    ids=["acknowledged", "muted", "closed", "succeeded"],
)
def test_a_person_or_a_success_ends_the_escalation(steps: list[str], act: Any) -> None:
    fail(2, urgency="high")
    wait(31)
    act(the_incident().pk)

    wait(31)
    wait(31)

    assert escalations() == ["lead"]


def test_one_that_opens_again_goes_on_where_it_was(steps: list[str]) -> None:
    fail(2, urgency="high")
    wait(31)
    succeed()
    fail(2, urgency="high")

    for _ in range(6):
        wait(31)

    assert escalations() == steps


def test_one_that_flaps_is_escalated_as_long_after_its_message_as_any_other(steps: list[str]) -> None:
    fail(2, urgency="high")
    succeed()
    fail(2, urgency="high")
    wait(61)
    assert notification_texts()[-1].startswith("Trigger greeter fails again")

    for _ in range(7):  # in all 70 minutes
        wait(10)
        succeed()
        fail(2, urgency="high")

    assert escalations() == steps


@pytest.mark.parametrize("until", ["9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59+00:00"])
def test_an_end_beyond_the_calendar_is_refused(until: str) -> None:
    fail(2)

    with pytest.raises(ValueError, match="after the year 9998"):
        mute(until)

    fail(1)  # the row can be read
    assert not the_incident().is_muted


def test_without_recipients_nothing_is_planned() -> None:
    fail(2, urgency="high")

    assert the_incident().tell_at is None


def test_recipients_that_were_removed_from_the_settings_get_nothing(steps: list[str], settings: Any) -> None:
    fail(2, urgency="high")
    settings.WAKEFUL_ESCALATE_TO = []

    wait(31)

    assert (escalations(), the_incident().tell_at) == ([], None)
