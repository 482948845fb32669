"""Tokens that are to be revoked at their provider (RFC 7009): messages of the outbox, committed with the end of their connection, so that
a process that dies, or a provider that is away, leaves none alive.

Wakeful tries for a day. The secrets of a message are encrypted, as in the row of the connection.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import structlog
from cryptography.fernet import InvalidToken
from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured

from runs.connections import REVOCATION, protocol
from runs.connections.catalog import providers
from runs.connections.protocol import ProviderError, Tokens
from runs.connections.sealed import opened, sealed
from runs.connections.tokens import provider_of
from runs.db.encryption import keys, place_of_key
from runs.db.sql import database_now
from runs.models import Connection, OutboxMessage

log = structlog.get_logger(__name__)

PATIENCE = timedelta(days=1)
SEALED = ("client_secret", "token")  # of a payload
SOON = timedelta(minutes=1)  # after which another process tries, if the one that ends the connection has died


def owe(
    connection: Connection,
    refresh: bytes | memoryview | None,
    access: bytes | memoryview | None,
    *,
    after: timedelta = timedelta(),
) -> OutboxMessage:
    """Write down, in the caller's transaction, that these tokens, which are encrypted, are to be revoked at the connection's provider."""
    now = database_now()
    payload = {
        "connection": connection.pk,
        "provider": connection.provider,
        "settings": connection.settings,
        "client_id": connection.client_id,
        "client_secret": _text(connection.client_secret),
        "token": _text(refresh or access),
        "hint": "refresh_token" if refresh else "access_token",
        "until": (now + PATIENCE).isoformat(),
    }
    return OutboxMessage.objects.create(topic=REVOCATION, payload=payload, available_at=now + after)


def owe_late(connection: Connection, tokens: Tokens) -> None:
    """Write down that tokens are to be revoked which have come after a person has revoked their connection, or their user was deleted."""
    state = Connection.objects.filter(pk=connection.pk).values_list("state", flat=True).first()
    has_ended = state == Connection.State.REVOKED or (state is None and _is_deleted(connection.owner_user_id))
    if has_ended and provider_of(connection).revoke_url:
        owe(connection, sealed(tokens.refresh), sealed(tokens.access))


def _is_deleted(user_id: Any) -> bool:
    return user_id is not None and not get_user_model()._base_manager.filter(pk=user_id).exists()


def settle(payload: dict[str, Any]) -> None:
    """Have the provider revoke the token of a message. Raises ProviderError, or an error of this code: another try follows."""
    ended = Connection.objects.filter(pk=payload["connection"])
    if ended.filter(state=Connection.State.CONNECTED).exists():
        # A provider may end all that the person has allowed to this client.
        log.warning("connection.not_revoked_there", connection=payload["connection"], reason="it is connected again")
        return
    try:
        outcome = revoke(payload)
    except Exception as error:
        if datetime.fromisoformat(payload["until"]) > database_now():
            raise
        log.warning("connection.not_revoked_there", connection=payload["connection"], exc_info=error)
        outcome = f"{not_revoked(payload, why(error))} Wakeful has stopped trying.{by_hand(payload)}"
    else:
        log.info("connection.revoked_there", connection=payload["connection"], outcome=outcome)
    ended.filter(state=Connection.State.REVOKED).update(reason=outcome)


def revoke(payload: dict[str, Any]) -> str:
    """Try once to have the provider revoke it; the outcome as a sentence. Raises ProviderError if another try may succeed."""
    try:
        secret, token = (opened(_bytes(payload[name])) for name in ("client_secret", "token"))
    except (InvalidToken, ImproperlyConfigured) as error:  # nothing may keep a person from revoking
        return not_revoked(payload, f"no key decrypts its secrets ({type(error).__name__})") + by_hand(payload)
    provider = provider_of(Connection(provider=payload["provider"], settings=payload["settings"]))
    protocol.revoke(provider, protocol.Client(id=payload["client_id"], secret=secret), token, payload["hint"])
    return f"Revoked, here and at {provider.label}."


def why(error: Exception) -> str:
    """The texts of other errors may quote secrets."""
    return str(error) if isinstance(error, ProviderError) else type(error).__name__


def not_revoked(payload: dict[str, Any], why: str) -> str:
    known = providers().get(payload["provider"])
    return f"Its tokens are deleted here. {known.label if known else payload['provider']} has not revoked them: {why}."


def by_hand(payload: dict[str, Any]) -> str:
    known = providers().get(payload["provider"])
    return f" Remove the access there, too{f': {known.access_page}' if known and known.access_page else '.'}"


def encrypted_in_messages() -> Iterator[tuple[str, bytes]]:
    """The name of a connection, or its number if it has been removed, and a ciphertext of a message."""
    owed = list(OutboxMessage.objects.filter(topic=REVOCATION).values_list("payload", flat=True))
    names = dict(Connection.objects.filter(pk__in={one["connection"] for one in owed}).values_list("pk", "name"))
    for payload in owed:
        name = names.get(payload["connection"], str(payload["connection"]))
        yield from ((name, payload[column].encode()) for column in SEALED if payload[column] is not None)


def rewrite_messages() -> int:
    """Encrypt what messages have with the first key; returns the number of changed ciphertexts. Each message is a compare-and-set."""
    count = 0
    for pk, payload in OutboxMessage.objects.filter(topic=REVOCATION).order_by("pk").values_list("pk", "payload"):
        texts = {column: _bytes(payload[column]) for column in SEALED}
        rotated = {
            column: keys().rotate(text) for column, text in texts.items() if text and (place_of_key(text) or 1) > 1
        }
        changed = {**payload, **{column: _text(text) for column, text in rotated.items()}}
        if rotated and OutboxMessage.objects.filter(pk=pk, payload=payload).update(payload=changed):
            count += len(rotated)
    return count


def _text(ciphertext: bytes | memoryview | None) -> str | None:
    return None if ciphertext is None else bytes(ciphertext).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()
