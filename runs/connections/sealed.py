"""The secrets of connections: encrypted at rest by the keys of all secrets, and known to redaction as soon as they are read."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from cryptography.fernet import InvalidToken
from django.conf import settings

from agents.kernel.redaction import know
from runs.db.encryption import decrypt, encrypt, keys, place_of_key
from runs.models import Connection

SEALED = ("client_secret", "access_token", "refresh_token")


def sealed(plain: str) -> bytes | None:
    if not plain:
        return None
    know(plain)
    return encrypt(plain.encode())


def opened(ciphertext: Any) -> str:
    """The plain text; empty for none. InvalidToken or ImproperlyConfigured: no key can decrypt it."""
    return decrypt(ciphertext).decode() if ciphertext is not None else ""


# For redaction, and for the rotation of keys


def plain_tokens() -> Iterator[str]:
    """All that our keys can decrypt."""
    if settings.WAKEFUL_ENCRYPTION_KEYS:
        for _, ciphertext in encrypted_tokens():
            with suppress(InvalidToken):
                yield decrypt(ciphertext).decode()


def encrypted_tokens() -> Iterator[tuple[str, bytes]]:
    """The name of a connection, and one of its ciphertexts."""
    for name, *ciphertexts in Connection.objects.values_list("name", *SEALED):
        yield from ((name, bytes(one)) for one in ciphertexts if one is not None)


def rewrite_tokens() -> int:
    """Encrypt them with the first key; returns the number of changed ones. Each is a compare-and-set."""
    count = 0
    for column in SEALED:
        for pk, ciphertext in Connection.objects.exclude(**{column: None}).order_by("pk").values_list("pk", column):
            before = bytes(ciphertext)
            if (place_of_key(before) or 1) > 1:
                unchanged = Connection.objects.filter(pk=pk, **{column: before})
                count += unchanged.update(**{column: keys().rotate(before)})
    return count
