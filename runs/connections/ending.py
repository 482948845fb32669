"""Test a connection, and revoke it: at the provider, and here in any case."""

from django.db import transaction
from django.db.models import F

from agents.exceptions import AgentError
from agents.guards.atomic import not_in_atomic_body
from runs.connections import protocol
from runs.connections.lease import lease, read
from runs.connections.protocol import ProviderError
from runs.connections.sealed import opened
from runs.connections.tokens import NO_TOKENS, client_of, provider_of
from runs.exceptions import IllegalState
from runs.models import Connection, audit


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
    """Forget its tokens, and have the provider end them (RFC 7009); what came of it, as a sentence."""
    connection = Connection.objects.get(pk=connection_id)
    if connection.state != Connection.State.CONNECTED:
        raise IllegalState("it is not connected", connection.state)
    outcome = _ended_there(connection)
    with transaction.atomic():
        Connection.objects.filter(pk=connection_id).update(
            **NO_TOKENS, state=Connection.State.REVOKED, reason=outcome, granted=[], revision=F("revision") + 1
        )
        audit.record(by, "revoke", connection, name=connection.name, outcome=outcome)
    return outcome


def _ended_there(connection: Connection) -> str:
    """Whatever becomes of it at the provider, it ends here."""
    try:
        provider = provider_of(connection)
    except KeyError:
        return "Its tokens are deleted here."
    where = (
        f" Remove the access there, too: {provider.access_page}"
        if provider.access_page
        else " Remove the access there, too."
    )
    if not provider.revoke_url:
        return f"Its tokens are deleted here. {provider.label} has no address for revocation.{where}"
    try:
        refresh, client = opened(connection.refresh_token), client_of(connection)
        token = refresh or opened(connection.access_token)
        protocol.revoke(provider, client, token, "refresh_token" if refresh else "access_token")
    except ProviderError as error:
        return f"Its tokens are deleted here. {provider.label} has not revoked them: {error}.{where}"
    except Exception as error:  # such as a key that is gone: nothing may keep a person from revoking
        return f"Its tokens are deleted here. {provider.label} was not asked to revoke them: {type(error).__name__}.{where}"
    return f"Revoked, here and at {provider.label}."
