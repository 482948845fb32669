"""A person connects their account: they are sent to the provider, and come back with a code, which is exchanged for tokens.

The state that they bring back is known by its hash alone, belongs to the session and the person that it was made for, ends after ten
minutes and is used once: a row that the first return deletes. So a code that a stranger has obtained for their own account cannot be
planted here (RFC 6749, 10.12), and a code that a stranger has seen is worth nothing without the verifier (RFC 7636).
"""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from urllib.parse import urlsplit

from cryptography.fernet import InvalidToken
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.db.models import F

from agents.guards.atomic import not_in_atomic_body
from agents.kernel.redaction import know
from runs.connections import protocol
from runs.connections.lease import OF_NO_USER, to_its_end
from runs.connections.protocol import ProviderError, Tokens
from runs.connections.provider import CODE, Provider
from runs.connections.sealed import opened, sealed
from runs.connections.tokens import NO_TOKENS, client_of, columns_of, provider_of
from runs.db.sql import database_now
from runs.exceptions import IllegalState, RunError
from runs.models import Connection, PendingConsent, audit
from runs.users import user_named

LASTS = timedelta(minutes=10)


class NoConsent(RunError):
    """The person came back without a consent that counts; the message gives the reason and what to do."""


@not_in_atomic_body
def begin_consent(connection_id: int, *, session: str, redirect_uri: str, by: str) -> str:
    """The provider's address to send the person to. `session` is a secret of the person's session."""
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    know(state)
    with transaction.atomic():
        # Locked, so that an edit either is what the person is sent by, or ends this consent.
        connection = Connection.objects.select_for_update().get(pk=connection_id)
        if connection.grant != CODE:
            raise IllegalState("it is connected without a person: use “Get a token”", connection.state)
        _require_owner(connection, by)
        provider, client = provider_of(connection), _client_of(connection)
        with _secrets_of(connection):
            kept = sealed(verifier)
        connection.pending_consents.filter(by=by).delete()  # one at a time
        PendingConsent.objects.create(
            connection=connection,
            state_sha256=_hash(state),
            session_sha256=_hash(session),
            by=by,
            verifier=kept,
            redirect_uri=redirect_uri,
            expires_at=database_now() + LASTS,
        )
        audit.record(by, "send to provider", connection, name=connection.name)
    return protocol.consent_url(
        provider, client, connection.scopes, state=state, verifier=verifier, redirect_uri=redirect_uri
    )


@not_in_atomic_body
def end_consent(*, state: str, session: str, code: str, error: str = "", issuer: str = "", by: str) -> Connection:
    """The person came back from the provider with this state and code. Raises NoConsent."""
    pending = _take(state, session, by)
    connection = pending.connection
    provider, client = provider_of(connection), _client_of(connection)
    if error or not code:
        raise NoConsent(
            f"{provider.label} gave no consent ({protocol.RefusedByProvider(error).code}). Connect again, and allow it."
        )
    _require_issuer(provider, issuer)
    know(code)
    redirect_uri = pending.redirect_uri
    with _secrets_of(connection):
        verifier = opened(pending.verifier)

    def exchange() -> None:
        at = database_now()
        try:
            tokens = protocol.exchange(provider, client, code=code, verifier=verifier, redirect_uri=redirect_uri)
        except ProviderError as refused:
            raise NoConsent(
                f"{provider.label} gave no token: {refused}. Check the client id and the secret, and connect again."
            ) from None
        connect_with(connection, tokens, at=at, by=by)

    to_its_end(exchange)
    return Connection.objects.get(pk=connection.pk)


@not_in_atomic_body
def connect_application(connection_id: int, *, by: str) -> Connection:
    """Get the token of an application, for which no person logs in. Raises NoConsent."""
    connection = Connection.objects.get(pk=connection_id)
    if connection.grant == CODE:
        raise IllegalState("it is connected by a person: use “Connect”", connection.state)
    _require_owner(connection, by)
    provider, client = provider_of(connection), _client_of(connection)
    at = database_now()
    try:
        tokens = protocol.of_application(provider, client, connection.scopes)
    except ProviderError as error:
        raise NoConsent(f"{provider.label} gave no token: {error}.") from None
    connect_with(connection, tokens, at=at, by=by)
    return Connection.objects.get(pk=connection_id)


def connect_with(connection: Connection, tokens: Tokens, *, at: datetime, by: str) -> None:
    """Raises NoConsent if the connection has changed since: the tokens may belong to another client."""
    columns = {**NO_TOKENS, "granted": connection.scopes, **columns_of(tokens, at=at)}
    unchanged = Connection.objects.filter(
        pk=connection.pk, client_id=connection.client_id, settings=connection.settings
    )
    with transaction.atomic():
        connected = unchanged.update(
            **columns, state=Connection.State.CONNECTED, connected_at=at, connected_by=by, revision=F("revision") + 1
        )
        if not connected:
            raise NoConsent("The connection was changed meanwhile. Connect again.")
        audit.record(by, "connect", connection, name=connection.name, scopes=columns["granted"])


def _take(state: str, session: str, by: str) -> PendingConsent:
    with transaction.atomic():
        found = PendingConsent.objects.select_for_update(of=("self",)).select_related("connection")
        pending = found.filter(state_sha256=_hash(state), session_sha256=_hash(session), by=by).first()
        if pending is None:
            raise NoConsent(
                "This answer is unknown here: it was used already, or another session asked for it. Connect again."
            )
        pending.delete()
    if pending.expires_at < database_now():
        raise NoConsent("It took more than ten minutes. Connect again.")
    return pending


def _require_owner(connection: Connection, by: str) -> None:
    if not connection.owner:
        return
    if connection.owner_user_id is None:
        raise IllegalState(f"it {OF_NO_USER.format(owner=connection.owner)}", connection.state)
    user = user_named(connection.owner)
    if by != f"admin:{connection.owner}" or user is None or user.pk != connection.owner_user_id:
        raise IllegalState(f"it belongs to {connection.owner}, who alone may connect it", connection.state)


def _require_issuer(provider: Provider, issuer: str) -> None:
    """The answer of another provider, mixed up with this one's, is refused (RFC 9207): its code must not come to this one. Where no
    issuer is entered, the answer must come from the host that the person was sent to."""
    if not issuer or "{" in provider.issuer:
        return
    said, known = (issuer, provider.issuer) if provider.issuer else (_host(issuer), _host(provider.authorize_url))
    if said.rstrip("/") != known.rstrip("/"):
        raise NoConsent(
            "The answer comes from another provider than the one that was asked. If it is the right one, enter its issuer."
        )


def _host(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _client_of(connection: Connection) -> protocol.Client:
    with _secrets_of(connection):
        return client_of(connection)


@contextmanager
def _secrets_of(connection: Connection) -> Iterator[None]:
    """Raises IllegalState where a key is missing."""
    try:
        yield
    except ImproperlyConfigured as missing:
        raise IllegalState(str(missing), connection.state) from None
    except InvalidToken:
        raise IllegalState(
            "no key of WAKEFUL_ENCRYPTION_KEYS decrypts its secrets: enter the client secret again, and connect again",
            connection.state,
        ) from None


def _hash(text: str) -> str:
    return sha256(text.encode(errors="replace")).hexdigest()
