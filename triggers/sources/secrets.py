"""Signing secrets of sources: encrypted at rest, shown to a person once, read by verification only."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from runs.audit import record, record_about
from triggers.models import Secret, Source
from triggers.sources.webhooks.scheme import schemes

GRACE = timedelta(hours=24)  # the old secret goes on counting while the sender is being changed


@dataclass(frozen=True, kw_only=True)
class KeyUse:
    """How many secrets each of WAKEFUL_ENCRYPTION_KEYS is needed for, by its place in the list (1 encrypts), and the
    sources whose secrets none of them can read."""

    secrets: Counter[int]
    unreadable: list[str]

    @property
    def only_first(self) -> bool:
        return not self.unreadable and set(self.secrets) <= {1}


def encrypt(plain: bytes) -> bytes:
    return _keys().encrypt(plain)


def decrypt(ciphertext: bytes | memoryview) -> bytes:
    """The plain text; cryptography.fernet.InvalidToken if none of our keys made it."""
    return _keys().decrypt(bytes(ciphertext))


def plain_secrets() -> Iterator[str]:
    """The secrets of all sources that our keys can read: for those who keep them out of what others read."""
    if settings.WAKEFUL_ENCRYPTION_KEYS:
        for ciphertext in Secret.objects.values_list("ciphertext", flat=True):
            with suppress(InvalidToken):
                yield decrypt(ciphertext).decode()


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


def keys_in_use() -> KeyUse:
    """Which keys the secrets are encrypted with. ImproperlyConfigured without any key."""
    _keys()
    secrets: Counter[int] = Counter()
    unreadable = set()
    for secret in Secret.objects.select_related("source").iterator():
        if place := _place_of_key(bytes(secret.ciphertext)):
            secrets[place] += 1
        else:
            unreadable.add(secret.source.slug)
    return KeyUse(secrets=secrets, unreadable=sorted(unreadable))


def encrypt_anew(*, by: str) -> int:
    """Encrypt with the first key whatever another one encrypted; how many secrets. Those that no key can read stay as
    they are. It may be interrupted, repeated, and done by several at once: each secret is a compare-and-set."""
    keys = _keys()
    count = 0
    for secret in Secret.objects.order_by("pk").iterator():
        before = bytes(secret.ciphertext)
        if (_place_of_key(before) or 1) > 1:
            unchanged = Secret.objects.filter(pk=secret.pk, ciphertext=before)
            count += unchanged.update(ciphertext=keys.rotate(before))
    if count:
        record_about(by, "rotate keys", "secret", "*", secrets=count)
    return count


def _place_of_key(ciphertext: bytes) -> int | None:
    for place, key in enumerate(settings.WAKEFUL_ENCRYPTION_KEYS, start=1):
        try:
            Fernet(key).decrypt(ciphertext)
        except InvalidToken:
            continue
        return place
    return None


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
