"""What operators do to recipients and groups."""

from datetime import UTC, datetime, time, timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.conf import settings
from django.contrib.auth.models import User
from django.core.exceptions import ValidationError

from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models import AuditEntry, Delivery, Recipient, RecipientGroup
from runs.notifications.edit import (
    change_group,
    change_recipient,
    create_group,
    create_recipient,
    open_inbox,
    remove_group,
    remove_recipient,
    send_test,
    silence,
    silence_for,
)
from runs.notifications.plan import plan
from runs.notifications.recipients import address_of, plain_addresses, rewrite_addresses, sync_settings
from tests.support.notifying import delivered, make_recipient, notify, statuses
from tests.support.post_office import taking_hooks

pytestmark = pytest.mark.django_db
SECRET = "https://example.com/hooks/very-secret"
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def ada(db: None) -> User:
    return User.objects.create_user("ada", is_staff=True)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_ENCRYPTION_KEYS", [Fernet.generate_key().decode()])


def test_an_address_with_a_secret_is_encrypted_and_shown_without_it() -> None:
    recipient = create_recipient(name="ops", address=SECRET, by="ada")

    kept = Recipient.objects.get()
    assert (kept.address, kept.host, kept.channel) == ("https://example.com/…", "example.com", "webhook")
    assert b"very-secret" not in bytes(kept.ciphertext or b"")
    assert address_of(kept) == SECRET
    assert "very-secret" not in str(AuditEntry.objects.get(object_id=str(recipient.pk)).detail)
    assert list(plain_addresses()) == [SECRET]


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
        # Beyond the calendar, the sum with a time would stop the planning of everything.
        ({"spacing": timedelta(days=9_000_000)}, "spacing"),
        ({"silenced_until": datetime.max.replace(tzinfo=UTC)}, "silenced_until"),
        ({"zone": "Europe"}, "zone"),  # a folder
        ({"address": "inbox:unknown"}, "address"),
        ({"address": f"mailto:{'a' * 2000}@example.com"}, "address"),
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
    sync_settings()
    recipient = Recipient.objects.get()

    for change in ({"address": "inbox:ada"}, {"active": False}):
        with pytest.raises(IllegalState, match="comes from WAKEFUL_NOTIFY_TO"):
            change_recipient(recipient.pk, by="ada", **change)
    with pytest.raises(IllegalState):
        remove_recipient(recipient.pk, by="ada")
    assert change_recipient(recipient.pk, by="ada", digest_hour=8).digest_hour == 8


def test_a_group_and_a_recipient_share_no_name() -> None:
    recipient = make_recipient("ops")

    with pytest.raises(ValidationError, match="There is a recipient or a group 'ops' already"):
        create_group("ops", [recipient], by="ada")
    group = create_group("office", [recipient], by="ada")
    with pytest.raises(ValidationError, match="already"):
        change_group(group.pk, name="ops", by="ada")
    change_group(group.pk, name="desk", by="ada")
    assert list(group.members.all()) == [recipient]
    change_group(group.pk, members=[], by="ada")
    assert not RecipientGroup.objects.get(name="desk").members.exists()
    remove_group(group.pk, by="ada")
    assert not RecipientGroup.objects.exists()
    actions = AuditEntry.objects.filter(kind="recipientgroup").order_by("id").values_list("action", flat=True)
    assert list(actions) == ["create", "change", "change", "remove"]


def test_nothing_takes_the_name_of_the_recipient_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="the recipient of that setting"):
        create_recipient(name="WAKEFUL_NOTIFY_TO", address="mailto:ada@example.com", by="ada")
    with pytest.raises(ValidationError, match="the recipient of that setting"):
        create_group("WAKEFUL_NOTIFY_TO", [], by="ada")

    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "mailto:ops@example.com")
    monkeypatch.setattr(settings, "EMAIL_URL", "smtp://127.0.0.1")
    sync_settings()
    assert Recipient.objects.get().is_from_settings


def test_a_test_message_is_sent_regardless_of_the_rules() -> None:
    recipient = make_recipient(silenced_until=database_now() + timedelta(days=1), digest_hour=8)

    delivery = send_test(recipient.pk, by="ada")
    delivered()

    delivery.refresh_from_db()
    assert (delivery.status, delivery.notification.text) == (
        "sent",
        "This is a test of the recipient ops, requested by ada.",
    )
    change_recipient(recipient.pk, by="ada", active=False)
    with pytest.raises(IllegalState, match="is inactive"):
        send_test(recipient.pk, by="ada")


def test_addresses_are_encrypted_again_with_the_first_key(monkeypatch: pytest.MonkeyPatch) -> None:
    create_recipient(name="ops", address=SECRET, by="ada")
    monkeypatch.setattr(
        settings, "WAKEFUL_ENCRYPTION_KEYS", [Fernet.generate_key().decode(), *settings.WAKEFUL_ENCRYPTION_KEYS]
    )

    assert (rewrite_addresses(), rewrite_addresses()) == (1, 0)
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


def test_a_held_delivery_waits_until_the_end_of_a_silence_and_of_quiet_hours() -> None:
    recipient = make_recipient(spacing=HOUR, zone="Europe/Vienna")
    for text in ("sent", "held"):
        notify(text)
        delivered()
    until = silence_for(recipient.pk, timedelta(days=1), by="ada").silenced_until

    held = Delivery.objects.get(status="held")
    assert held.due_at == until and held.reason.startswith("silenced until ")
    assert held.give_up_at and until and held.give_up_at > until
    silence(recipient.pk, None, by="ada")
    held.refresh_from_db()
    first = Delivery.objects.get(status="sent")
    assert first.sent_at and held.due_at == first.sent_at + HOUR


def test_an_urgent_message_that_waits_is_not_put_off_by_a_silence() -> None:
    recipient = make_recipient()
    notify("now", urgency="high")
    plan()

    silence_for(recipient.pk, HOUR, by="ada")
    delivered()

    assert statuses() == ["sent"]


def test_waiting_deliveries_are_suppressed_when_their_recipient_becomes_inactive() -> None:
    second = make_recipient("night", gets_all=False)
    recipient = make_recipient(spacing=HOUR, second=second)
    notify("sent")
    delivered()
    notify("held")
    plan()
    notify("now", urgency="high")
    plan()

    change_recipient(recipient.pk, active=False, by="ada")
    delivered()

    assert statuses(name="ops") == ["sent", "suppressed", "suppressed"]
    assert {one.reason for one in Delivery.objects.filter(name="ops", status="suppressed")} == {
        "the recipient was made inactive"
    }
    assert statuses(name="night") == ["sent"]
    assert Delivery.objects.get(name="night").notification.text == "now"


def test_an_inbox_is_opened_once_and_gets_what_names_no_recipient() -> None:
    make_recipient("ada", "mailto:ada@example.com", gets_all=False)

    first, second = open_inbox("ada", by="ada"), open_inbox("ada", by="ada")
    notify("news")
    delivered()

    assert (first.pk, first.name, first.address) == (second.pk, "ada's inbox", "inbox:ada")
    assert [(one.name, one.status) for one in Delivery.objects.all()] == [("ada's inbox", "sent")]
    assert AuditEntry.objects.filter(action="create", kind="recipient").count() == 1


def test_a_silence_has_an_end_within_a_year() -> None:
    recipient = make_recipient()

    for length in (timedelta(days=400), timedelta(days=9_000_000), -HOUR):
        with pytest.raises(ValidationError, match="within a year"):
            silence_for(recipient.pk, length, by="ada")
