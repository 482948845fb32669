"""A row that the database or its own rules refuse does not stop the others, and a person sees what became of it."""

import pytest
from django.db import IntegrityError, connection
from django.db.models import Q
from django.db.models.functions import Now

from config.health.problems import problems
from config.health.situation import read_situation
from runs.db.encryption import encrypt
from runs.models import Delivery, Notification, Recipient, Worker
from runs.notifications.deliver import fail
from runs.notifications.plan import plan
from runs.notifications.resolve import resolve
from runs.processes import failing
from runs.processes.lease import Presence
from runs.queues.courier import AGAIN, Notifier
from tests.support.notifying import delivered, make_recipient, notify
from tests.support.stack import eventually

pytestmark = pytest.mark.django_db


def refuse(name: str) -> None:
    """The database takes no delivery to this recipient."""
    with connection.cursor() as cursor:
        cursor.execute(
            f"ALTER TABLE runs_delivery ADD CONSTRAINT refused CHECK (name <> '{name}' OR status = 'failed')"
        )


def accept() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute("ALTER TABLE runs_delivery DROP CONSTRAINT refused")


def statuses_of(notification: Notification) -> dict[str, str]:
    return dict(Delivery.objects.filter(notification=notification).values_list("name", "status"))


def names_of_problems() -> set[str]:
    return {problem.name for problem in problems(read_situation())}


def test_a_delivery_of_an_unplanned_notification_stops_no_other_and_is_not_made_twice() -> None:
    ada, _ = make_recipient("ada"), make_recipient("bob")
    there = notify("has a delivery already")
    Delivery.objects.create(
        notification=there, recipient=ada, name="ada", channel="inbox", status="sent", sent_at=Now(), ended_at=Now()
    )
    later = notify("behind it")

    delivered()

    assert statuses_of(there) == {"ada": "sent", "bob": "sent"}
    assert statuses_of(later) == {"ada": "sent", "bob": "sent"}
    assert not Notification.objects.filter(planned_at=None).exists()


def test_a_recipient_that_nothing_can_be_planned_for_costs_no_other_a_message() -> None:
    refuse("cy")
    make_recipient("cy", gets_all=False)
    make_recipient("ada", gets_all=False)
    both, hers = notify("to both", to=["cy", "ada"]), notify("to ada", to=["ada"])

    delivered()

    assert statuses_of(hers) == {"ada": "sent"}
    assert statuses_of(both) == {"cy": "failed", "ada": "sent"}
    its = Delivery.objects.get(notification=both, name="cy")
    assert its.reason.startswith('it could not be planned: new row for relation "runs_delivery" violates')
    assert "unreachable:cy" in names_of_problems()

    accept()
    resolve(its.pk, outcome="send_again", by="ada")
    delivered()
    assert statuses_of(both) == {"cy": "sent", "ada": "sent"}


def test_what_fails_while_nothing_else_succeeds_is_kept() -> None:
    refuse("cy")
    make_recipient("cy", gets_all=False)
    alone = notify("to cy", to=["cy"])

    for _ in range(3):
        with pytest.raises(IntegrityError):
            plan()
    assert Notification.objects.filter(planned_at=None).exists() and not Delivery.objects.exists()

    accept()
    delivered()
    assert statuses_of(alone) == {"cy": "sent"}


def test_what_cannot_be_planned_does_not_stop_what_is_planned_and_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "close", lambda: None)  # the notifier works in this test's session
    monkeypatch.setattr(failing, "SHOWN_AFTER", 0.0)
    refuse("cy")
    make_recipient("ada", gets_all=False)
    make_recipient("cy", gets_all=False)
    hers = notify("to ada", to=["ada"])
    plan()
    notify("to cy", to=["cy"])
    notifier, presence = Notifier(), Presence(Worker.Kind.DISPATCHER)

    assert notifier._go() == AGAIN
    eventually(lambda: not notifier.deliverer.sending.results.empty())
    assert notifier._go() == AGAIN
    assert statuses_of(hers) == {"ada": "sent"}

    presence.renew(notifier.troubles)
    found = {problem.name: problem for problem in problems(read_situation())}
    assert "it sends no notification" in found["failing:notifier"].text
    assert "violates check constraint" in found["failing:notifier"].text

    accept()
    assert notifier._go() == 0
    presence.renew(notifier.troubles)
    assert "failing:notifier" not in names_of_problems()


def test_a_delivery_whose_other_route_cannot_be_planned_fails_all_the_same() -> None:
    refuse("cy")
    cy = make_recipient("cy", gets_all=False)
    make_recipient("ada", gets_all=False, second=cy)
    hers = notify("to ada", to=["ada"])
    plan()

    assert fail(Delivery.objects.get(notification=hers).pk, Q(), "refused")

    failed = Delivery.objects.get(notification=hers)
    assert failed.status == "failed" and failed.reason.startswith("refused; no other route: new row for relation")
    assert "unreachable:ada" in names_of_problems()


def test_a_delivery_that_cannot_be_read_is_tried_again_later_and_stops_no_other() -> None:
    make_recipient("ada", gets_all=False)
    make_recipient("bob", gets_all=False)
    Recipient.objects.filter(name="bob").update(ciphertext=encrypt(b"\xff"))  # no text
    his, hers = notify("to bob", to=["bob"]), notify("to ada", to=["ada"])

    delivered()

    assert statuses_of(hers) == {"ada": "sent"}
    assert statuses_of(his) == {"bob": "pending"}
    assert Delivery.objects.get(notification=his).error.startswith("it cannot be sent: UnicodeDecodeError")
