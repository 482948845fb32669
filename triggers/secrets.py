"""Signing secrets of sources: encrypted at rest, shown to a person once, read by verification only."""

from datetime import timedelta

from cryptography.fernet import Fernet, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from runs.audit import record
from triggers.models import Secret, Source
from triggers.sources.webhooks.scheme import schemes

GRACE = timedelta(hours=24)  # the old secret goes on counting while the sender is being changed


def encrypt(plain: bytes) -> bytes:
    return _keys().encrypt(plain)


def decrypt(ciphertext: bytes | memoryview) -> bytes:
    """The plain text; cryptography.fernet.InvalidToken if none of our keys made it."""
    return _keys().decrypt(bytes(ciphertext))


def add_secret(source: Source, plain: str, *, grace: timedelta = GRACE, by: str) -> Secret:
    """Give the source a secret its sender chose; those it had end after `grace`. Raises InvalidSettings."""
    cleaned = schemes()[source.kind].clean_secret(plain)
    with transaction.atomic():
        _end_others(source, grace)
        secret = Secret.objects.create(source=source, ciphertext=encrypt(cleaned.encode()))
        record(by, "add secret", source, secret=secret.pk, grace_seconds=int(grace.total_seconds()))
    return secret


def rotate(source: Source, *, grace: timedelta = GRACE, by: str) -> str:
    """Make a new secret; its plain text, which nobody can read again."""
    plain = schemes()[source.kind].new_secret()
    add_secret(source, plain, grace=grace, by=by)
    return plain


def _end_others(source: Source, grace: timedelta) -> None:
    # Never longer than they would have lasted: rotating twice must not revive what the first rotation ended.
    ending = Q(not_after=None) | Q(not_after__gt=Now() + grace)
    source.secrets.filter(ending, not_before__lt=Now() + grace).update(not_after=Now() + grace)


def _keys() -> MultiFernet:
    if not settings.WAKEFUL_ENCRYPTION_KEYS:
        raise ImproperlyConfigured(
            "WAKEFUL_ENCRYPTION_KEYS is empty: set a key of Fernet.generate_key() to keep secrets"
        )
    return MultiFernet([Fernet(key) for key in settings.WAKEFUL_ENCRYPTION_KEYS])
