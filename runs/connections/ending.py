"""Test a connection, and revoke it: at the provider, and here in any case."""

from datetime import timedelta
from typing import Any

import structlog
from django.db import transaction
from django.db.models import F

from agents.exceptions import AgentError
from agents.guards.atomic import not_in_atomic_body
from runs.connections import revocation
from runs.connections.lease import lease, read
from runs.connections.protocol import ProviderError
from runs.connections.tokens import NO_TOKENS, provider_of
from runs.exceptions import IllegalState
from runs.models import Connection, OutboxMessage, audit

log = structlog.get_logger(__name__)


@not_in_atomic_body
def test_connection(connection_id: int, *, by: str) -> str:
    """Renew its token now, where it can be renewed; what came of it, as a sentence. Raises IllegalState."""
    connection = Connection.objects.get(pk=connection_id)
    try:
        standing = read(connection.name)
        before = lease(connection.name)
        if not standing.is_renewable:
            return "Its token can be read and has not expired. It cannot be renewed, so the provider was not asked."
        lease(connection.name, refused=before.token)
    except AgentError as error:
        raise IllegalState(str(error), connection.state) from None
    finally:
        audit.record(by, "test", connection, name=connection.name)
    if (found := Connection.objects.get(pk=connection_id)).failing_since:
        raise IllegalState(f"no new token: {found.reason}", found.state)
    return "It works: the provider has given a token."


@not_in_atomic_body
def revoke_connection(connection_id: int, *, by: str) -> str:
    """Forget its tokens, and have the provider revoke them (RFC 7009); the outcome as a sentence. It ends here whatever the provider does;
    where that does not answer, or this process dies, another try follows."""
    with transaction.atomic():
        connection = Connection.objects.select_for_update().get(pk=connection_id)
        if connection.state != Connection.State.CONNECTED:
            raise IllegalState("it is not connected", connection.state)
        owed, outcome = _owed(connection)
        ended = Connection.objects.filter(pk=connection_id)
        ended.update(
            **NO_TOKENS, state=Connection.State.REVOKED, reason=outcome, granted=[], revision=F("revision") + 1
        )
        audit.record(by, "revoke", connection, name=connection.name)
    if owed:
        outcome = _ended_there(owed, is_renewing=connection.claim is not None)
        ended.filter(state=Connection.State.REVOKED, revision=connection.revision + 1).update(reason=outcome)
    return outcome


def end_connections_of(user_id: Any) -> None:
    """Remove the connections of a user who is being deleted, in the caller's transaction, and have their providers revoke the tokens."""
    for connection in Connection.objects.select_for_update().filter(owner_user=user_id):
        is_connected = connection.state == Connection.State.CONNECTED
        outcome = {"outcome": _owed(connection, after=timedelta())[1]} if is_connected else {}
        audit.record("wakeful", "remove", connection, name=connection.name, owner=connection.owner, **outcome)
        connection.delete()


def _owed(connection: Connection, *, after: timedelta = revocation.SOON) -> tuple[OutboxMessage | None, str]:
    """The message for its provider, if it has an address for revocation, and what is known so far, as a sentence."""
    try:
        provider = provider_of(connection)
    except KeyError:
        return None, "Its tokens are deleted here."
    if not provider.revoke_url:
        where = f": {provider.access_page}" if provider.access_page else "."
        return (
            None,
            f"Its tokens are deleted here. {provider.label} has no address for revocation. Remove the access there, too{where}",
        )
    owed = revocation.owe(connection, connection.refresh_token, connection.access_token, after=after)
    return owed, f"Its tokens are deleted here. {provider.label} has not revoked them yet."


def _ended_there(owed: OutboxMessage, *, is_renewing: bool) -> str:
    try:
        outcome = revocation.revoke(owed.payload)
    except Exception as error:
        if not isinstance(error, ProviderError):
            log.exception("connection.not_revoked_there", connection=owed.payload["connection"])
        return f"{revocation.not_revoked(owed.payload, revocation.why(error))} Wakeful tries again for a day."
    owed.delete()
    if is_renewing:
        outcome += f" A new token was on its way, and is revoked when it comes. If it does not come here:{revocation.by_hand(owed.payload)}"
    return outcome
