"""What people say about deliveries, and operators do to recipients."""

from datetime import time, timedelta
from typing import Any
from uuid import uuid4

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.core.exceptions import ValidationError

from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models import AuditEntry, Delivery, Recipient, RecipientGroup
from runs.notifications import recipients
from runs.notifications.channels.channel import Sent, Unknown
from runs.notifications.deliver import Result, claim_next, record
from runs.notifications.plan import plan
from runs.notifications.recipients import (
    address_of,
    change_recipient,
    create_recipient,
    remove_recipient,
    send_test,
    set_group,
    silence,
)
from runs.notifications.resolve import acknowledge, resolve
from tests.support.notifying import delivered, make_recipient, notify, statuses
from tests.support.post_office import taking_hooks

pytestmark = pytest.mark.django_db
SECRET = "https://example.com/hooks/very-secret"


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_ENCRYPTION_KEYS", [Fernet.generate_key().decode()])


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


def test_a_person_says_that_it_arrived() -> None:
    job = unknown()

    delivery = resolve(job.id, outcome="arrived", by="ada")

    assert (delivery.status, delivery.reason) == ("sent", "ada said that it arrived")
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


def test_an_address_with_a_secret_is_encrypted_and_shown_without_it() -> None:
    recipient = create_recipient(name="ops", address=SECRET, by="ada")

    kept = Recipient.objects.get()
    assert (kept.address, kept.host, kept.channel) == ("https://example.com/…", "example.com", "webhook")
    assert b"very-secret" not in bytes(kept.ciphertext or b"")
    assert address_of(kept) == SECRET
    assert "very-secret" not in str(AuditEntry.objects.get(object_id=str(recipient.pk)).detail)
    assert list(recipients.plain_addresses()) == [SECRET]


def test_an_address_with_a_secret_needs_a_key_and_one_without_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_ENCRYPTION_KEYS", [])

    with pytest.raises(ValidationError, match="WAKEFUL_ENCRYPTION_KEYS is empty"):
        create_recipient(name="ops", address=SECRET, by="ada")
    assert create_recipient(name="ops", address="inbox:ada", by="ada").ciphertext is None


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": ""}, "name"),
        ({"name": " ops"}, "name"),
        ({"name": "taken"}, "name"),
        ({"name": "office"}, "name"),
        ({"address": "ops@example.com"}, "address"),
        ({"zone": "Vienna"}, "zone"),
        ({"quiet_from": time(22)}, "quiet_until"),
        ({"quiet_from": time(22), "quiet_until": time(22)}, "quiet_until"),
        ({"digest_hour": 24}, "digest_hour"),
        ({"least_urgency": "urgent"}, "least_urgency"),
        ({"spacing": timedelta(seconds=-1)}, "spacing"),
    ],
)
def test_a_recipient_that_makes_no_sense_is_refused_by_the_field(fields: dict[str, Any], field: str) -> None:
    make_recipient("taken")
    RecipientGroup.objects.create(name="office")

    with pytest.raises(ValidationError) as refused:
        create_recipient(**{"name": "ops", "address": "inbox:ada", "by": "ada", **fields})

    assert set(refused.value.message_dict) == {field}


def test_a_changed_address_is_used_from_then_on() -> None:
    recipient = create_recipient(name="ops", address=SECRET, by="ada")

    change_recipient(recipient.pk, by="ada", address="inbox:ada", spacing=timedelta(0))
    notify()
    delivered()

    assert statuses() == ["sent"]
    assert Recipient.objects.get().ciphertext is None


def test_a_silence_has_an_end() -> None:
    recipient = make_recipient()

    silence(recipient.pk, database_now() + timedelta(days=1), by="ada")
    notify("a")
    plan()
    silence(recipient.pk, None, by="ada")
    notify("b")
    plan()

    assert statuses() == ["suppressed", "pending"]


def test_a_removed_recipient_leaves_its_history() -> None:
    recipient = make_recipient(spacing=timedelta(hours=1))
    notify("a")
    delivered()
    for text in "bc":
        notify(text)
    plan()

    remove_recipient(recipient.pk, by="ada")
    delivered()

    assert statuses() == ["sent", "suppressed", "suppressed"]
    assert {(one.name, one.recipient) for one in Delivery.objects.all()} == {("ops", None)}


def test_the_recipient_of_the_settings_is_changed_in_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "inbox:admin")
    recipients.sync_settings()
    recipient = Recipient.objects.get()

    for change in ({"address": "inbox:ada"}, {"active": False}):
        with pytest.raises(IllegalState, match="comes from WAKEFUL_NOTIFY_TO"):
            change_recipient(recipient.pk, by="ada", **change)
    with pytest.raises(IllegalState):
        remove_recipient(recipient.pk, by="ada")
    assert change_recipient(recipient.pk, by="ada", digest_hour=8).digest_hour == 8


def test_a_group_and_a_recipient_share_no_name() -> None:
    recipient = make_recipient("ops")

    with pytest.raises(ValidationError, match="is the name of a recipient"):
        set_group("ops", [recipient], by="ada")
    set_group("office", [recipient], by="ada")
    set_group("office", [], by="ada")
    assert not RecipientGroup.objects.get().members.exists()


def test_a_test_is_sent_whatever_the_rules_say() -> None:
    recipient = make_recipient(silenced_until=database_now() + timedelta(days=1), digest_hour=8)

    delivery = send_test(recipient.pk, by="ada")
    delivered()

    delivery.refresh_from_db()
    assert (delivery.status, delivery.notification.text) == (
        "sent",
        "This is a test of the recipient ops, asked for by ada.",
    )
    change_recipient(recipient.pk, by="ada", active=False)
    with pytest.raises(IllegalState, match="is inactive"):
        send_test(recipient.pk, by="ada")


def test_addresses_are_encrypted_again_with_the_first_key(monkeypatch: pytest.MonkeyPatch) -> None:
    create_recipient(name="ops", address=SECRET, by="ada")
    monkeypatch.setattr(
        settings, "WAKEFUL_ENCRYPTION_KEYS", [Fernet.generate_key().decode(), *settings.WAKEFUL_ENCRYPTION_KEYS]
    )

    assert (recipients.rewrite_addresses(), recipients.rewrite_addresses()) == (1, 0)
    monkeypatch.setattr(settings, "WAKEFUL_ENCRYPTION_KEYS", settings.WAKEFUL_ENCRYPTION_KEYS[:1])
    assert address_of(Recipient.objects.get()) == SECRET


def test_a_recipient_is_not_its_own_second_route() -> None:
    recipient = make_recipient()

    with pytest.raises(ValidationError, match="own second route"):
        change_recipient(recipient.pk, by="ada", second=recipient)


def test_the_address_of_a_webhook_stands_in_no_log(capfd: pytest.CaptureFixture[str]) -> None:
    with taking_hooks() as server:
        create_recipient(name="ops", address=f"{server.url}/very-secret", spacing=timedelta(), by="ada")
        notify()
        delivered()

    assert server.posted[0].path == "/hook/very-secret"
    assert "very-secret" not in "".join(capfd.readouterr())
