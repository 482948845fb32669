"""Secrets at rest: encrypted with WAKEFUL_ENCRYPTION_KEYS: the first key encrypts, all decrypt."""

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

from agents.kernel.redaction import know


def encrypt(plain: bytes) -> bytes:
    return keys().encrypt(plain)


def decrypt(ciphertext: bytes | memoryview) -> bytes:
    """The plain text. Raises cryptography.fernet.InvalidToken if no key can decrypt it."""
    plain = keys().decrypt(bytes(ciphertext))
    know(plain.decode(errors="replace"))
    return plain


def place_of_key(ciphertext: bytes) -> int | None:
    """The position of the key that it needs; 1 is the one that encrypts."""
    for place, key in enumerate(settings.WAKEFUL_ENCRYPTION_KEYS, start=1):
        try:
            Fernet(key).decrypt(ciphertext)
        except InvalidToken:
            continue
        return place
    return None


def keys() -> MultiFernet:
    if not settings.WAKEFUL_ENCRYPTION_KEYS:
        raise ImproperlyConfigured(
            "WAKEFUL_ENCRYPTION_KEYS is empty: set it to a key from Fernet.generate_key(), to store secrets"
        )
    return MultiFernet([Fernet(key) for key in settings.WAKEFUL_ENCRYPTION_KEYS])
