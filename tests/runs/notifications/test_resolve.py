"""What people say about deliveries: it arrived, send it again, I have seen it."""

from typing import Any
from uuid import uuid4

import pytest

from runs.exceptions import IllegalState
from runs.models import AuditEntry, Delivery, Recipient
from runs.notifications.channels.channel import Sent, Unknown
from runs.notifications.deliver import Result, claim_next, record
from runs.notifications.plan import plan
from runs.notifications.resolve import acknowledge, resolve
from tests.support.notifying import delivered, make_recipient, notify, statuses
from tests.support.post_office import taking_hooks

pytestmark = pytest.mark.django_db


def unknown() -> Any:
    """The job of a delivery whose outcome is unknown."""
    make_recipient(address="slack+http://127.0.0.1:1/x")
    notify()
    plan()
    job = claim_next([])
    assert job
    record(Result(job=job, outcome=Unknown(why="cut")))
    assert statuses() == ["unknown"]
    return job


def test_a_person_confirms_that_an_unknown_delivery_arrived() -> None:
    job = unknown()

    delivery = resolve(job.id, outcome="arrived", by="ada")

    assert (delivery.status, delivery.reason) == ("sent", "ada confirmed that it arrived")
    assert AuditEntry.objects.get().action == "resolve"


def test_a_person_has_it_sent_again() -> None:
    job = unknown()
    with taking_hooks() as server:
        Recipient.objects.update(address=f"slack+{server.url}")

        resolve(job.id, outcome="send_again", by="ada")
        delivered()

    assert statuses() == ["sent"] and len(server.posted) == 1


def test_a_late_word_of_a_resolved_delivery_changes_nothing() -> None:
    job = unknown()
    resolve(job.id, outcome="send_again", by="ada")

    assert not record(Result(job=job, outcome=Sent()))
    assert statuses() == ["pending"]


def test_only_what_is_unknown_can_be_resolved() -> None:
    job = unknown()
    resolve(job.id, outcome="arrived", by="ada")

    with pytest.raises(IllegalState, match="is sent; send_again is for an unknown or failed one"):
        resolve(job.id, outcome="send_again", by="ada")
    with pytest.raises(ValueError, match="outcome is one of arrived, send_again"):
        resolve(job.id, outcome="lost", by="ada")  # type: ignore[arg-type]
    with pytest.raises(Delivery.DoesNotExist):
        resolve(uuid4(), outcome="arrived", by="ada")


def test_the_first_acknowledgement_counts() -> None:
    make_recipient()
    notify()
    plan()
    with pytest.raises(IllegalState, match="nothing to see yet"):
        acknowledge(Delivery.objects.get().pk, by="ada")
    delivered()

    first = acknowledge(Delivery.objects.get().pk, by="ada")
    second = acknowledge(first.pk, by="bob")

    assert (second.acknowledged_by, second.acknowledged_at) == ("ada", first.acknowledged_at)
    assert AuditEntry.objects.filter(action="acknowledge").count() == 1


def test_nothing_is_sent_again_to_an_inactive_recipient() -> None:
    job = unknown()
    Recipient.objects.update(active=False)

    with pytest.raises(IllegalState, match="inactive: activate it first"):
        resolve(job.id, outcome="send_again", by="ada")
    assert statuses() == ["unknown"]
