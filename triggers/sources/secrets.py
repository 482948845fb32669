"""Signing secrets of sources: encrypted at rest, shown once, and read only for verification."""

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from cryptography.fernet import InvalidToken
from django.conf import settings
from django.db import transaction
from django.db.models import Model, Q
from django.db.models.functions import Now

from agents.kernel.redaction import know
from runs.connections.revocation import encrypted_in_messages, rewrite_messages
from runs.connections.sealed import encrypted_tokens, rewrite_tokens
from runs.db.encryption import decrypt, encrypt, keys, place_of_key
from runs.models.audit import record, record_about
from runs.notifications.recipients import encrypted_addresses, rewrite_addresses
from triggers.models import Secret, Source, Subscription, SubscriptionSecret
from triggers.sources.kind import kinds

SEALED: tuple[type[Model], ...] = (Secret, Subscription, SubscriptionSecret)  # each with a `ciphertext`
# Of a row of `secret`, in SQL.
IS_VALID = """
(secret.not_before <= (SELECT clock_timestamp()) AND (secret.not_after IS NULL OR secret.not_after > (SELECT clock_timestamp())))
"""
GRACE = timedelta(hours=24)  # the old secret stays valid while the sender is changed


@dataclass(frozen=True, kw_only=True)
class KeyUse:
    """The number of secrets of sources, recipients, connections, owed revocations and subscriptions that need each of
    WAKEFUL_ENCRYPTION_KEYS, by its position (key 1 encrypts), and those of them with secrets that no key can decrypt."""

    secrets: Counter[int]
    unreadable: list[str]

    @property
    def only_first(self) -> bool:
        return not self.unreadable and set(self.secrets) <= {1}


def plain_secrets() -> Iterator[str]:
    """The secrets of all sources that our keys can decrypt, for redaction."""
    if settings.WAKEFUL_ENCRYPTION_KEYS:
        for model in SEALED:
            for ciphertext in model._default_manager.values_list("ciphertext", flat=True):
                with suppress(InvalidToken):
                    yield decrypt(ciphertext).decode()


def newest_secret(source: Source) -> str:
    """The plain text of its newest live secret; empty without one. InvalidToken if no key can decrypt it."""
    live = source.secrets.filter(Q(not_after=None) | Q(not_after__gt=Now()), not_before__lte=Now()).order_by("-pk")
    sealed = live.values_list("ciphertext", flat=True).first()
    return decrypt(bytes(sealed)).decode() if sealed is not None else ""


def secret_of(source_id: UUID) -> str:
    """`newest_secret` of the source with this id; empty if it is gone."""
    source = Source.objects.filter(pk=source_id).first()
    return newest_secret(source) if source else ""


def add_secret(source: Source, plain: str, *, grace: timedelta = GRACE, by: str) -> Secret:
    """Add a secret that the sender chose; earlier secrets end after `grace`. Raises InvalidSettings."""
    cleaned = kinds()[source.kind].clean_secret(plain)
    with transaction.atomic():
        _end_others(source, grace)
        secret = Secret.objects.create(source=source, ciphertext=encrypt(cleaned.encode()))
        know(cleaned)
        record(by, "add secret", source, secret=secret.pk, grace_seconds=int(grace.total_seconds()))
    return secret


def rotate(source: Source, *, grace: timedelta = GRACE, by: str) -> str:
    """Create a secret; returns its plain text, which cannot be read again."""
    plain = kinds()[source.kind].new_secret()
    add_secret(source, plain, grace=grace, by=by)
    return plain


def keys_in_use() -> KeyUse:
    """The keys that secrets are encrypted with. ImproperlyConfigured if there is no key."""
    keys()
    secrets: Counter[int] = Counter()
    unreadable = set()
    for secret in Secret.objects.select_related("source").iterator():
        if place := place_of_key(bytes(secret.ciphertext)):
            secrets[place] += 1
        else:
            unreadable.add(secret.source.slug)
    for name, ciphertext in _elsewhere():
        if place := place_of_key(ciphertext):
            secrets[place] += 1
        else:
            unreadable.add(name)
    return KeyUse(secrets=secrets, unreadable=sorted(unreadable))


def reencrypt(*, by: str) -> int:
    """Encrypt all secrets with the first key; returns the number of changed secrets. Secrets that no key can decrypt are
    skipped. Safe to interrupt, to repeat and to run concurrently: each secret is a compare-and-set."""
    all_keys = keys()
    count = rewrite_addresses() + rewrite_tokens() + rewrite_messages()  # messages are copies of tokens
    for model in SEALED:
        for pk, ciphertext in model._default_manager.order_by("pk").values_list("pk", "ciphertext").iterator():
            before = bytes(ciphertext)
            if (place_of_key(before) or 1) > 1:
                unchanged = model._default_manager.filter(pk=pk, ciphertext=before)
                count += unchanged.update(ciphertext=all_keys.rotate(before))
    if count:
        record_about(by, "rotate keys", "secret", "*", secrets=count)
    return count


def _elsewhere() -> Iterator[tuple[str, bytes]]:
    """The ciphertexts that belong to no source, and what each belongs to."""
    for name, ciphertext in encrypted_addresses():
        yield f"recipient {name}", ciphertext
    for name, ciphertext in encrypted_tokens():
        yield f"connection {name}", ciphertext
    for name, ciphertext in encrypted_in_messages():
        yield f"revocation of connection {name}", ciphertext
    for subscription in Subscription.objects.only("slug", "ciphertext"):
        yield f"subscription {subscription.slug}", bytes(subscription.ciphertext)
    for secret in SubscriptionSecret.objects.select_related("subscription"):
        yield f"subscription {secret.subscription.slug}", bytes(secret.ciphertext)


def _end_others(source: Source, grace: timedelta) -> None:
    # Never extend a secret: a second rotation must not revive one that the first rotation ended.
    ending = Q(not_after=None) | Q(not_after__gt=Now() + grace)
    source.secrets.filter(ending, not_before__lt=Now() + grace).update(not_after=Now() + grace)
