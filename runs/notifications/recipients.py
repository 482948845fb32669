"""Recipients and groups: their addresses, their rules, and what operators do to them."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urldefrag
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Q

from agents.guards.atomic import not_in_atomic_body
from agents.redaction import know
from runs import audit
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.encryption import decrypt, encrypt, keys, place_of_key
from runs.exceptions import IllegalState
from runs.models import Delivery, Notification, Recipient, RecipientGroup
from runs.notifications.channels.channel import channel_of, fault_of
from runs.notifications.lock import lock_planning
from runs.notifications.policy import QuietHours, Rules
from runs.notifications.waiting import suppress_waiting

OF_SETTINGS = "WAKEFUL_NOTIFY_TO"  # its name
WAKEFUL = "wakeful"
# What an operator may change of a recipient, besides its address.
CHANGEABLE = frozenset(
    {"name", "gets_all", "zone", "quiet_from", "quiet_until", "spacing", "digest_hour", "least_urgency", "repeat_after"}
    | {"second", "second_after", "silenced_until", "active"}
)


def rules_of(recipient: Recipient) -> Rules:
    quiet = None
    if recipient.quiet_from is not None and recipient.quiet_until is not None:
        quiet = QuietHours(start=recipient.quiet_from, until=recipient.quiet_until)
    return Rules(
        zone=_zone(recipient.zone),
        quiet=quiet,
        spacing=recipient.spacing,
        digest_hour=recipient.digest_hour,
        least_urgency=recipient.least_urgency,
        repeat_after=recipient.repeat_after,
        silenced_until=recipient.silenced_until,
        active=recipient.active,
    )


def address_of(recipient: Recipient) -> str:
    """The whole address. Raises InvalidToken or ImproperlyConfigured if no key can decrypt it."""
    if recipient.is_from_settings:
        return str(settings.WAKEFUL_NOTIFY_TO)
    if recipient.ciphertext is None:
        return recipient.address
    address = decrypt(recipient.ciphertext).decode()
    know(*urldefrag(address))
    return address


# What operators do


@not_in_atomic_body
def create_recipient(*, name: str, address: str, by: str, **rules: Any) -> Recipient:
    """ValidationError names the field and the fix. An address with secret parts needs WAKEFUL_ENCRYPTION_KEYS."""
    with transaction.atomic():
        _require_free(name)
        recipient = Recipient(name=name, **_place_of(address))
        _apply(recipient, rules)
        recipient.save()
        audit.record(by, "create", recipient, name=name, **_shown(rules))
    return recipient


@not_in_atomic_body
def change_recipient(recipient_id: int, *, by: str, address: str | None = None, **rules: Any) -> Recipient:
    """Change its rules, and its address if one is given. ValidationError names the field and the fix. What already waits
    keeps the time that it has."""
    with transaction.atomic():
        recipient = Recipient.objects.select_for_update().get(pk=recipient_id)
        if recipient.is_from_settings and (address is not None or {"name", "active"} & set(rules)):
            raise IllegalState(f"the recipient comes from {OF_SETTINGS}: change or unset it", "from settings")
        if rules.get("name", recipient.name) != recipient.name:
            _require_free(rules["name"])
        if address is not None:
            for field, value in _place_of(address).items():
                setattr(recipient, field, value)
        _apply(recipient, rules)
        recipient.save()
        audit.record(by, "change", recipient, address_changed=address is not None, **_shown(rules))
    return recipient


@not_in_atomic_body
def remove_recipient(recipient_id: int, *, by: str) -> None:
    """Its deliveries stay, without it; those that wait are suppressed."""
    with transaction.atomic():
        lock_planning()
        recipient = Recipient.objects.select_for_update().get(pk=recipient_id)
        if recipient.is_from_settings:
            raise IllegalState(f"the recipient comes from {OF_SETTINGS}: unset it", "from settings")
        suppress_waiting(Q(recipient=recipient), reason="the recipient was removed")
        audit.record(by, "remove", recipient, name=recipient.name)
        recipient.delete()


def silence(recipient_id: int, until: datetime | None, *, by: str) -> Recipient:
    """Send it nothing until then; None ends the silence. Urgent news goes to its second route, if it has one."""
    return change_recipient(recipient_id, by=by, silenced_until=until)


@not_in_atomic_body
def set_group(name: str, members: Iterable[Recipient], *, by: str) -> RecipientGroup:
    """Create the group of this name, or replace its members."""
    with transaction.atomic():
        if Recipient.objects.filter(name=name).exists():
            raise ValidationError({"name": f"{name!r} is the name of a recipient: use another one"})
        group, _ = RecipientGroup.objects.get_or_create(name=_named(name))
        chosen = list(members)
        group.members.set(chosen)
        audit.record(by, "set members", group, name=name, members=sorted(member.name for member in chosen))
    return group


@not_in_atomic_body
def remove_group(group_id: int, *, by: str) -> None:
    with transaction.atomic():
        group = RecipientGroup.objects.select_for_update().get(pk=group_id)
        audit.record(by, "remove", group, name=group.name)
        group.delete()


@not_in_atomic_body
def send_test(recipient_id: int, *, by: str) -> Delivery:
    """Send it a message now, whatever its rules say; the delivery says what becomes of it."""
    with transaction.atomic():
        recipient = Recipient.objects.get(pk=recipient_id)
        if not recipient.active:
            raise IllegalState(f"recipient {recipient.name} is inactive: activate it first", "inactive")
        now = database_now()
        notification = Notification.objects.create(
            sender=WAKEFUL,
            text=f"This is a test of the recipient {recipient.name}, asked for by {by}.",
            to=[recipient.name],
            planned_at=now,
        )
        delivery = Delivery.objects.create(
            notification=notification,
            recipient=recipient,
            name=recipient.name,
            channel=recipient.channel,
            status=Delivery.Status.PENDING,
            is_urgent=True,
            due_at=now,
            give_up_at=now + recipient.second_after,
            reason="a test",
        )
        audit.record(by, "send test", recipient, name=recipient.name)
        nudge_dispatcher()
    return delivery


# The recipient of the settings


def sync_settings() -> None:
    """Make the row of WAKEFUL_NOTIFY_TO say what the setting says; one query if nothing has changed."""
    address = str(settings.WAKEFUL_NOTIFY_TO)
    channel = channel_of(address) if address and not fault_of(address) else None
    said: dict[str, Any] = {"active": channel is not None}
    if channel is not None:
        said |= {"address": channel.shown(address), "channel": channel.name, "host": channel.host(address)}
    row = Recipient.objects.filter(is_from_settings=True).first()
    if row is None and channel is not None:
        with (
            suppress(IntegrityError),
            transaction.atomic(),
        ):  # another dispatcher was first, or a person has taken the name
            Recipient.objects.create(name=OF_SETTINGS, is_from_settings=True, **said)
    elif row is not None and any(getattr(row, field) != value for field, value in said.items()):
        Recipient.objects.filter(pk=row.pk).update(**said)


# Its secrets


def plain_addresses() -> Iterator[str]:
    """The addresses with secrets that our keys can read: for those who keep them out of what others read."""
    if settings.WAKEFUL_ENCRYPTION_KEYS:
        for _, ciphertext in encrypted_addresses():
            with suppress(InvalidToken):
                yield decrypt(ciphertext).decode()


def encrypted_addresses() -> Iterator[tuple[str, bytes]]:
    """Names and ciphertexts."""
    found = Recipient.objects.exclude(ciphertext=None).values_list("name", "ciphertext")
    for name, ciphertext in found:
        yield name, bytes(ciphertext or b"")


def rewrite_addresses() -> int:
    """Encrypt all addresses with the first key; returns the number of changed ones. Each is a compare-and-set."""
    count = 0
    for recipient in Recipient.objects.exclude(ciphertext=None).order_by("pk"):
        before = bytes(recipient.ciphertext or b"")
        if (place_of_key(before) or 1) > 1:
            unchanged = Recipient.objects.filter(pk=recipient.pk, ciphertext=before)
            count += unchanged.update(ciphertext=keys().rotate(before))
    return count


# Checks


def _place_of(address: str) -> Mapping[str, Any]:
    """The columns of an address."""
    address = address.strip()
    channel, fault = channel_of(address), fault_of(address)
    if fault or channel is None:
        raise ValidationError({"address": f"This address cannot be used: {fault}."})
    shown = channel.shown(address)
    ciphertext = None
    if shown != address:
        know(address)
        try:
            ciphertext = encrypt(address.encode())
        except ImproperlyConfigured as error:
            raise ValidationError({"address": str(error)}) from None
    return {"address": shown, "ciphertext": ciphertext, "channel": channel.name, "host": channel.host(address)}


def _apply(recipient: Recipient, rules: Mapping[str, Any]) -> None:
    if unknown := set(rules) - CHANGEABLE:
        raise TypeError(f"{', '.join(sorted(unknown))} cannot be set")
    for field, value in rules.items():
        setattr(recipient, field, value)
    _named(recipient.name)
    if faults := dict(_faults(recipient)):
        raise ValidationError(faults)


def _faults(recipient: Recipient) -> Iterator[tuple[str, str]]:
    """Fields, and the fix of each. The constraints of the table say the same."""
    try:
        _zone(recipient.zone)
    except (ZoneInfoNotFoundError, ValueError):
        yield "zone", f"{recipient.zone!r} is no time zone. Write one such as Europe/Vienna."
    if (recipient.quiet_from is None) != (recipient.quiet_until is None):
        yield "quiet_until", "Set both quiet hours, or neither."
    elif recipient.quiet_from is not None and recipient.quiet_from == recipient.quiet_until:
        yield (
            "quiet_until",
            "Quiet hours that end when they begin are none. Set another time, or make the recipient inactive.",
        )
    if recipient.digest_hour is not None and not 0 <= recipient.digest_hour <= 23:
        yield "digest_hour", "Write an hour from 0 to 23."
    if recipient.least_urgency not in Notification.Urgency.values:
        yield "least_urgency", "Write low, normal or high."
    for field in ("spacing", "repeat_after", "second_after"):
        if getattr(recipient, field) < timedelta():
            yield field, "Write a duration of 0 or more."
    if recipient.second is not None and recipient.second.pk == recipient.pk:
        yield "second", "A recipient cannot be its own second route. Choose another one, or none."


def _named(name: str) -> str:
    if not name or name != name.strip() or len(name) > 200:
        raise ValidationError({"name": "Write a name of up to 200 characters, without a space around it."})
    return name


def _require_free(name: str) -> None:
    if Recipient.objects.filter(name=name).exists() or RecipientGroup.objects.filter(name=name).exists():
        raise ValidationError({"name": f"There is a recipient or a group {name!r} already: use another name."})


def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _shown(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Rules as JSON for the audit log."""
    return {
        field: value if isinstance(value, (bool, int, type(None))) else str(value) for field, value in rules.items()
    }
