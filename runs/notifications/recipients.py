"""Recipients as rows say them: their rules, their addresses, and the one that the settings name. `edit` changes them."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any
from urllib.parse import urldefrag
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import structlog
from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import IntegrityError, transaction

from agents.kernel.redaction import know
from runs.db.encryption import decrypt, keys, place_of_key
from runs.models import Recipient
from runs.notifications.channels.channel import channel_of, fault_of
from runs.notifications.policy import QuietHours, Rules

log = structlog.get_logger(__name__)

OF_SETTINGS = "WAKEFUL_NOTIFY_TO"  # its name
UTC = ZoneInfo("UTC")


def rules_of(recipient: Recipient) -> Rules:
    quiet = None
    if recipient.quiet_from is not None and recipient.quiet_until is not None:
        quiet = QuietHours(start=recipient.quiet_from, until=recipient.quiet_until)
    return Rules(
        zone=zone_of(recipient),
        quiet=quiet,
        spacing=recipient.spacing,
        digest_hour=recipient.digest_hour,
        least_urgency=recipient.least_urgency,
        repeat_after=recipient.repeat_after,
        silenced_until=recipient.silenced_until,
        active=recipient.active,
    )


def zone_of(recipient: Recipient | None) -> ZoneInfo:
    """UTC without a recipient, and if this machine does not know its zone: one recipient must not keep the others from their messages."""
    if recipient is None:
        return UTC
    try:
        return ZoneInfo(recipient.zone)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        log.warning("recipient.zone_unknown", recipient=recipient.name, zone=recipient.zone)
        return UTC


def address_of(recipient: Recipient) -> str:
    """The whole address. Raises InvalidToken or ImproperlyConfigured if no key can decrypt it."""
    if recipient.is_from_settings:
        return str(settings.WAKEFUL_NOTIFY_TO)
    if recipient.ciphertext is None:
        return recipient.address
    address = decrypt(recipient.ciphertext).decode()
    know(*urldefrag(address))
    return address


# The recipient of the settings


def sync_settings() -> None:
    """Give the row of WAKEFUL_NOTIFY_TO the values of the setting; one query if nothing has changed."""
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


# Secrets of addresses


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
