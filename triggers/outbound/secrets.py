"""Signing secrets of subscriptions: encrypted, shown once, two of them while the receiver changes to a new one."""

from datetime import timedelta

from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.redaction import know
from runs.db.encryption import decrypt, encrypt
from runs.models.audit import record
from runs.network.signing import LARGEST, PREFIX, SMALLEST, key_of, new_secret
from triggers.models import Subscription, SubscriptionSecret

GRACE = timedelta(hours=24)
LONGEST_GRACE = timedelta(days=30)
MOST = 5  # signatures of one delivery


@not_in_atomic_body
def rotate(subscription: Subscription, *, secret: str = "", grace: timedelta = GRACE, by: str) -> str:
    """Sign with a new secret, and with the old ones until `grace` is over. Returns the new one, which cannot be read again.
    ValidationError names the field and the fix."""
    if not timedelta() <= grace <= LONGEST_GRACE:
        raise ValidationError({"grace": "Enter a time from 0 to 30 days."})
    plain = checked(secret) if secret else new_secret()
    with transaction.atomic():
        locked = Subscription.objects.select_for_update().get(pk=subscription.pk)
        # Never extend a secret: a second rotation must not revive one that the first ended.
        locked.secrets.filter(Q(not_after=None) | Q(not_after__gt=Now() + grace)).update(not_after=Now() + grace)
        locked.secrets.filter(not_after__lte=Now()).delete()
        if locked.secrets.count() >= MOST:
            raise ValidationError(
                {"grace": f"{MOST} secrets are valid already. Enter 0, to end them, or wait until one ends."}
            )
        add(locked, plain)
        record(by, "rotate secret", locked, grace_seconds=int(grace.total_seconds()))
    return plain


def add(subscription: Subscription, plain: str) -> None:
    know(plain)
    SubscriptionSecret.objects.create(subscription=subscription, ciphertext=sealed(plain, field="secret"))


def checked(plain: str) -> str:
    """A secret that the receiver has made."""
    plain = plain.strip()
    try:
        key_of(plain)
    except ValueError:
        raise ValidationError(
            {"secret": f"This is no signing secret. Enter {PREFIX} and {SMALLEST} to {LARGEST} bytes in base64."}
        ) from None
    return plain


def sealed(plain: str, *, field: str) -> bytes:
    try:
        return encrypt(plain.encode())
    except ImproperlyConfigured as error:
        raise ValidationError({field: str(error)}) from None


def signing_keys(subscription: Subscription) -> list[bytes]:
    """Those that are valid now, the newest first. Raises InvalidToken or ImproperlyConfigured if one cannot be decrypted."""
    valid = subscription.secrets.filter(Q(not_after=None) | Q(not_after__gt=Now())).order_by("-pk")
    return [key_of(decrypt(one.ciphertext).decode()) for one in valid]
