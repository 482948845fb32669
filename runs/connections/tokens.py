"""Connections as rows say them: their client, their provider, their tokens."""

from datetime import datetime
from typing import Any

from runs.connections.catalog import providers
from runs.connections.protocol import Client, Tokens
from runs.connections.provider import Provider
from runs.connections.sealed import opened, sealed
from runs.models import Connection


def client_of(connection: Connection) -> Client:
    return Client(id=connection.client_id, secret=opened(connection.client_secret))


# Of a connection whose provider is not being asked, and has not failed since its last answer.
UNASKED: dict[str, Any] = {
    "claim": None,
    "claimed_until": None,
    "unanswered": 0,
    "failures": 0,
    "failing_since": None,
    "retry_at": None,
}


def provider_of(connection: Connection) -> Provider:
    """KeyError: no file of this version describes it."""
    return providers()[connection.provider].at(connection.settings)


def columns_of(tokens: Tokens, *, at: datetime) -> dict[str, Any]:
    """Of a connection that has these tokens, which were requested at this time of the database's clock."""
    return {
        "access_token": sealed(tokens.access),
        "expires_at": at + tokens.lasts if tokens.lasts else None,
        "refreshed_at": at,
        **UNASKED,
        "reason": "",
        # A provider that does not rotate gives no other refresh token, and does not repeat the scopes.
        **({"refresh_token": sealed(tokens.refresh)} if tokens.refresh else {}),
        **({"refresh_expires_at": at + tokens.refresh_lasts} if tokens.refresh_lasts else {}),
        **({"granted": list(tokens.scopes)} if tokens.scopes is not None else {}),
    }


NO_TOKENS: dict[str, Any] = {
    "access_token": None,
    "refresh_token": None,
    "expires_at": None,
    "refresh_expires_at": None,
    **UNASKED,
}
