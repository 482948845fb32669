"""Create, edit, silence and remove recipients and groups, and send tests: what the console, the API and the command line call.

Each edit is audited, and holds the lock of planning: no notification is planned by half of it, and no name is taken twice.
ValidationError names the field and the fix; IllegalState names what forbids it.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import transaction

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.redaction import know
from runs.db.encryption import encrypt
from runs.db.nudge import nudge_dispatcher
from runs.db.sql import database_now
from runs.exceptions import IllegalState
from runs.models import Delivery, Notification, Recipient, RecipientGroup, audit
from runs.notifications.channels.channel import channel_of, fault_of
from runs.notifications.channels.inbox import CHANNEL as INBOX
from runs.notifications.channels.inbox import PREFIX
from runs.notifications.inbox import has_reader
from runs.notifications.lock import lock_planning
from runs.notifications.recipients import OF_SETTINGS
from runs.notifications.waiting_deliveries import call_off, put_off

WAKEFUL = "wakeful"
# What an edit may change of a recipient, besides its address.
CHANGEABLE = frozenset(
    {"name", "gets_all", "zone", "quiet_from", "quiet_until", "spacing", "digest_hour", "least_urgency", "repeat_after"}
    | {"second", "second_after", "silenced_until", "active"}
)
DURATIONS = ("spacing", "repeat_after", "second_after")
LONGEST = timedelta(days=366)  # of a duration, and of a silence
LONGEST_NAME, LONGEST_ADDRESS = 200, 2000  # characters


@not_in_atomic_body
def create_recipient(*, name: str, address: str, by: str, **rules: Any) -> Recipient:
    """An address with secret parts needs WAKEFUL_ENCRYPTION_KEYS."""
    with transaction.atomic():
        lock_planning()
        _require_free(name)
        recipient = Recipient(name=name, **_place_of(address))
        _apply(recipient, rules)
        recipient.save()
        audit.record(by, "create", recipient, name=name, **_shown(rules))
    return recipient


@not_in_atomic_body
def change_recipient(recipient_id: int, *, by: str, address: str | None = None, **rules: Any) -> Recipient:
    """Change its rules, and its address if one is given. What already waits keeps the time that it has, unless the recipient is
    silenced or made inactive."""
    with transaction.atomic():
        recipient = _lock(recipient_id)
        if recipient.is_from_settings and (address is not None or {"name", "active"} & set(rules)):
            raise IllegalState(f"the recipient comes from {OF_SETTINGS}: change or unset it", "from settings")
        if rules.get("name", recipient.name) != recipient.name:
            _require_free(rules["name"])
        if address is not None:
            for field, value in _place_of(address).items():
                setattr(recipient, field, value)
        before = _before(recipient, rules)
        _apply(recipient, rules)
        recipient.save()
        if not recipient.active:
            call_off(recipient, reason="the recipient was made inactive")
        elif "silenced_until" in rules:
            put_off(recipient)
            nudge_dispatcher()
        changes = audit.changes(_shown(before), _shown(rules))
        audit.record(by, "change", recipient, address_changed=address is not None, **changes)
    return recipient


@not_in_atomic_body
def remove_recipient(recipient_id: int, *, by: str) -> None:
    """Its deliveries stay, without it; those that wait are called off."""
    with transaction.atomic():
        recipient = _lock(recipient_id)
        if recipient.is_from_settings:
            raise IllegalState(f"the recipient comes from {OF_SETTINGS}: unset it", "from settings")
        call_off(recipient, reason="the recipient was removed")
        audit.record(by, "remove", recipient, name=recipient.name)
        recipient.delete()


def silence(recipient_id: int, until: datetime | None, *, by: str) -> Recipient:
    """Send it nothing until then; None ends the silence. Urgent news goes to its second route, if it has one; what waits already
    goes out afterwards."""
    return change_recipient(recipient_id, by=by, silenced_until=until)


def silence_for(recipient_id: int, length: timedelta | None, *, by: str) -> Recipient:
    """Like `silence`, from now on; None ends the silence."""
    if length is not None and not timedelta() < length <= LONGEST:  # the sum might be beyond the calendar
        raise ValidationError({"silenced_until": TOO_LONG})
    return silence(recipient_id, database_now() + length if length else None, by=by)


@not_in_atomic_body
def open_inbox(username: str, *, gets_all: bool = True, by: str) -> Recipient:
    """A recipient that is the inbox of this user of the console; a new one gets what names no recipient, if `gets_all`."""
    address = f"{PREFIX}{username}"
    with transaction.atomic():
        lock_planning()
        if found := Recipient.objects.filter(address=address, active=True).first():
            return found
        name = username if _is_free(username) else f"{username}'s inbox"
        # An inbox disturbs no one, so nothing is held for it.
        return create_recipient(name=name, address=address, by=by, gets_all=gets_all, spacing=timedelta())


@not_in_atomic_body
def send_test(recipient_id: int, *, by: str) -> Delivery:
    """Send the recipient a message now, whatever its rules; the delivery shows the outcome."""
    with transaction.atomic():
        recipient = Recipient.objects.get(pk=recipient_id)
        if not recipient.active:
            raise IllegalState(f"recipient {recipient.name} is inactive: activate it first", "inactive")
        now = database_now()
        notification = Notification.objects.create(
            sender=WAKEFUL,
            text=f"This is a test of the recipient {recipient.name}, requested by {by}.",
            topic=topic_of_tests(recipient),
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


def topic_of_tests(recipient: Recipient) -> str:
    return f"wakeful:test:{recipient.pk}"


# Groups


@not_in_atomic_body
def create_group(name: str, members: Iterable[Recipient], *, by: str) -> RecipientGroup:
    with transaction.atomic():
        lock_planning()
        _require_free(_named(name))
        group = RecipientGroup.objects.create(name=name)
        _set_members(group, members, "create", by)
    return group


@not_in_atomic_body
def change_group(
    group_id: int, *, name: str | None = None, members: Iterable[Recipient] | None = None, by: str
) -> RecipientGroup:
    """Rename it, replace its members, or both."""
    with transaction.atomic():
        lock_planning()
        group = RecipientGroup.objects.select_for_update().get(pk=group_id)
        if name is not None and name != group.name:
            _require_free(_named(name))
            group.name = name
            group.save()
        _set_members(group, group.members.all() if members is None else members, "change", by)
    return group


@not_in_atomic_body
def remove_group(group_id: int, *, by: str) -> None:
    with transaction.atomic():
        lock_planning()
        group = RecipientGroup.objects.select_for_update().get(pk=group_id)
        audit.record(by, "remove", group, name=group.name)
        group.delete()


def _set_members(group: RecipientGroup, members: Iterable[Recipient], action: str, by: str) -> None:
    chosen = list(members)
    group.members.set(chosen)
    audit.record(by, action, group, name=group.name, members=sorted(member.name for member in chosen))


def _lock(recipient_id: int) -> Recipient:
    lock_planning()
    return Recipient.objects.select_for_update().get(pk=recipient_id)


# Checks


TOO_LONG = "Enter a time within a year. To send it nothing for longer, make the recipient inactive."


def _place_of(address: str) -> Mapping[str, Any]:
    """The columns of an address."""
    address = address.strip()
    if len(address) > LONGEST_ADDRESS:
        raise ValidationError({"address": f"Enter an address of up to {LONGEST_ADDRESS:,} characters."})
    channel, fault = channel_of(address), fault_of(address)
    if fault or channel is None:
        raise ValidationError({"address": f"This address cannot be used: {fault}."})
    if channel.name == INBOX.name and not has_reader(address):
        raise ValidationError(
            {
                "address": f"The console has no user {address.removeprefix(PREFIX)!r}. Enter inbox: and the name of a user."
            }
        )
    shown = channel.shown(address)
    ciphertext = None
    if shown != address:
        know(address)
        try:
            ciphertext = encrypt(address.encode())
        except ImproperlyConfigured as error:
            raise ValidationError({"address": str(error)}) from None
    return {"address": shown, "ciphertext": ciphertext, "channel": channel.name, "host": channel.host(address)}


def _before(recipient: Recipient, rules: Mapping[str, Any]) -> dict[str, Any]:
    second = rules.get("second")
    is_same = second is not None and second.pk == recipient.second_id  # then it need not be read
    return {field: second if field == "second" and is_same else getattr(recipient, field, None) for field in rules}


def _apply(recipient: Recipient, rules: Mapping[str, Any]) -> None:
    if unknown := set(rules) - CHANGEABLE:
        raise TypeError(f"{', '.join(sorted(unknown))} cannot be set")
    for field, value in rules.items():
        setattr(recipient, field, value)
    _named(recipient.name)
    if faults := dict(_faults(recipient)):
        raise ValidationError(faults)


def _faults(recipient: Recipient) -> Iterator[tuple[str, str]]:
    """Fields, and the fix of each. The constraints of the table say the same of most."""
    try:
        ZoneInfo(recipient.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        yield "zone", f"{recipient.zone!r} is no time zone. Enter one such as Europe/Vienna."
    if (recipient.quiet_from is None) != (recipient.quiet_until is None):
        yield "quiet_until", "Enter both quiet hours, or neither."
    elif recipient.quiet_from is not None and recipient.quiet_from == recipient.quiet_until:
        yield (
            "quiet_until",
            "Quiet hours that end when they begin are none. Enter another time, or make the recipient inactive.",
        )
    if recipient.digest_hour is not None and not 0 <= recipient.digest_hour <= 23:
        yield "digest_hour", "Enter an hour from 0 to 23."
    if recipient.least_urgency not in Notification.Urgency.values:
        yield "least_urgency", "Enter low, normal or high."
    for field in DURATIONS:
        if not timedelta() <= getattr(recipient, field) <= LONGEST:
            yield field, "Enter a duration from 0 to 366 days."
    if recipient.silenced_until is not None and recipient.silenced_until > database_now() + LONGEST:
        yield "silenced_until", TOO_LONG
    if recipient.second is not None and recipient.second.pk == recipient.pk:
        yield "second", "A recipient cannot be its own second route. Choose another one, or none."


def _named(name: str) -> str:
    if not name or name != name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise ValidationError({"name": f"Enter a name of up to {LONGEST_NAME} characters, without a space around it."})
    return name


def _is_free(name: str) -> bool:
    return not (Recipient.objects.filter(name=name).exists() or RecipientGroup.objects.filter(name=name).exists())


def _require_free(name: str) -> None:
    if name == OF_SETTINGS:  # a recipient of this name would keep that of the setting off the list
        raise ValidationError({"name": f"{name} is the recipient of that setting. Enter another name."})
    if not _is_free(name):
        raise ValidationError({"name": f"There is a recipient or a group {name!r} already. Enter another name."})


def _shown(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Rules as JSON for the audit log."""
    return {
        field: value if isinstance(value, (bool, int, type(None))) else str(value) for field, value in rules.items()
    }
