"""A person revokes a connection: no token of it stays alive at the provider, also one that comes while it is revoked, or where a process
dies in between."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.db import connection as database

from agents.exceptions import AgentError, NotConnected
from runs.connections import lease as leases
from runs.connections import revocation
from runs.connections.ending import revoke_connection
from runs.connections.lease import CLOCK, lease
from runs.connections.protocol import NoAnswer
from runs.models import Connection, OutboxMessage
from runs.outbox import deliver_slow
from tests.runs.connections.test_at_once import die, process
from tests.support.connections import connected, everything_stored, later
from tests.support.oauth_server import OAuthServer
from tests.support.stack import eventually
from triggers.sources.secrets import keys_in_use, reencrypt

pytestmark = pytest.mark.django_db(transaction=True)


@contextmanager
def renewing(provider: OAuthServer) -> Iterator[None]:
    """Inside the block, the provider has given new tokens, and its answer is on its way."""
    provider.held = held = threading.Event()
    given = len(provider.given)

    def take() -> None:
        with suppress(AgentError):
            lease("mail")
        database.close()

    thread = threading.Thread(target=take)
    thread.start()
    try:
        eventually(lambda: len(provider.given) > given)
        yield
    finally:
        held.set()
        thread.join()


def due_now() -> None:
    OutboxMessage.objects.update(available_at=CLOCK)


def test_a_token_that_comes_while_the_connection_is_revoked_is_revoked_as_well(provider: OAuthServer) -> None:
    made = connected(provider, left=-5)

    with renewing(provider):
        said = revoke_connection(made.pk, by="admin:ada")
    assert provider.grants, "a provider that rotates knows the old token no more"
    assert deliver_slow() == 1

    made.refresh_from_db()
    assert not provider.grants
    assert provider.revoked[-1] == provider.given[-1]
    assert "A new token was on its way" in said
    assert (made.state, made.access_token, made.refresh_token) == ("revoked", None, None)
    assert made.reason.startswith("Revoked, here and at")
    assert not OutboxMessage.objects.exists()


def test_a_provider_without_an_address_for_revocation_is_owed_nothing(provider: OAuthServer) -> None:
    addresses = {name: url for name, url in provider.settings.items() if name != "revoke_url"}
    made = connected(provider, left=-5, settings=addresses)

    with renewing(provider):
        said = revoke_connection(made.pk, by="admin:ada")

    assert not OutboxMessage.objects.exists(), "its message would fail for a day, and then hide the remedy"
    made.refresh_from_db()
    assert made.reason == said
    assert "has no address for revocation. Remove the access there, too" in said


def test_a_message_of_a_provider_that_this_version_does_not_know_ends_after_a_day(provider: OAuthServer) -> None:
    made = connected(provider)
    provider.revoke_status = 503
    revoke_connection(made.pk, by="admin:ada")
    payload = {**OutboxMessage.objects.get().payload, "provider": "removed"}

    with pytest.raises(KeyError):  # tried again: another process may know it
        revocation.settle(payload)
    revocation.settle({**payload, "until": "2020-01-01T00:00:00+00:00"})

    made.refresh_from_db()
    assert "removed has not revoked them: KeyError. Wakeful has stopped trying" in made.reason


def test_no_one_gets_a_token_while_the_provider_revokes_it(provider: OAuthServer) -> None:
    made = connected(provider)
    provider.revoke_gate = threading.Event()
    said: list[str] = []

    def revoke() -> None:
        said.append(revoke_connection(made.pk, by="admin:ada"))
        database.close()

    thread = threading.Thread(target=revoke)
    thread.start()
    eventually(lambda: Connection.objects.get().state == "revoked")
    with pytest.raises(NotConnected, match="is revoked"):
        lease("mail")
    provider.revoke_gate.set()
    thread.join()

    assert said == ["Revoked, here and at Other (OAuth 2 or OpenID Connect)."]
    assert not provider.grants and not OutboxMessage.objects.exists()


def test_a_revocation_is_repeated_until_the_provider_has_carried_it_out(provider: OAuthServer) -> None:
    made = connected(provider)
    refresh = provider.given[1]
    provider.revoke_status = 503

    said = revoke_connection(made.pk, by="admin:ada")
    assert "has not revoked them: it answers 503. Wakeful tries again for a day" in said
    with pytest.raises(NotConnected, match=r"for a day\. Connect it again"):
        lease("mail")
    due_now()
    deliver_slow()
    assert provider.grants and OutboxMessage.objects.get().attempts == 2
    provider.revoke_status = 200
    due_now()
    deliver_slow()

    made.refresh_from_db()
    assert provider.revoked == [refresh] and not provider.grants
    assert made.reason.startswith("Revoked, here and at") and not OutboxMessage.objects.exists()


@pytest.mark.parametrize("error", ["invalid_token", "token_revoked"])
def test_a_provider_that_knows_the_token_no_more_has_revoked_it(provider: OAuthServer, error: str) -> None:
    """The process before may have been killed with the answer."""
    made = connected(provider)
    provider.revoke_status, provider.revoke_error = 503, error
    revoke_connection(made.pk, by="admin:ada")
    provider.revoke_status = 200
    provider.withdraw()
    due_now()
    deliver_slow()

    made.refresh_from_db()
    assert made.reason == "Revoked, here and at Other (OAuth 2 or OpenID Connect)."
    assert not OutboxMessage.objects.exists()


def test_a_token_that_is_to_be_revoked_is_stored_encrypted(provider: OAuthServer) -> None:
    made = connected(provider)
    provider.revoke_status = 503
    revoke_connection(made.pk, by="admin:ada")

    stored = everything_stored()
    assert OutboxMessage.objects.exists()
    assert not [token for token in provider.given if token in stored]


def test_a_revocation_that_is_owed_outlives_the_key_it_was_encrypted_with(provider: OAuthServer, settings: Any) -> None:
    old, new = settings.WAKEFUL_ENCRYPTION_KEYS[0], Fernet.generate_key().decode()
    made = connected(provider)
    refresh = provider.given[1]
    provider.revoke_status = 503
    revoke_connection(made.pk, by="admin:ada")
    provider.revoke_status = 200

    settings.WAKEFUL_ENCRYPTION_KEYS = [new, old]
    assert not keys_in_use().only_first
    assert reencrypt(by="cli:test") == 3  # the client's secret is in the connection, too
    assert reencrypt(by="cli:test") == 0
    assert keys_in_use().only_first
    settings.WAKEFUL_ENCRYPTION_KEYS = [new]
    due_now()
    deliver_slow()

    made.refresh_from_db()
    assert provider.revoked == [refresh]
    assert made.reason.startswith("Revoked, here and at")


def test_a_revocation_that_no_key_can_read_is_named(provider: OAuthServer, settings: Any) -> None:
    made = connected(provider)
    provider.revoke_status = 503
    revoke_connection(made.pk, by="admin:ada")

    settings.WAKEFUL_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    assert keys_in_use().unreadable == ["connection mail", "revocation of connection mail"]
    assert reencrypt(by="cli:test") == 0
    Connection.objects.all().delete()
    assert keys_in_use().unreadable == [f"revocation of connection {made.pk}"]


def test_after_a_day_the_reason_names_what_a_person_has_to_remove(
    provider: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = connected(provider)
    provider.revoke_status = 503
    monkeypatch.setattr(revocation, "PATIENCE", timedelta(seconds=-1))
    revoke_connection(made.pk, by="admin:ada")
    due_now()
    deliver_slow()

    made.refresh_from_db()
    assert made.reason.endswith("Wakeful has stopped trying. Remove the access there, too.")
    assert not OutboxMessage.objects.exists()


def test_what_is_connected_again_meanwhile_is_not_ended_by_an_old_token(provider: OAuthServer) -> None:
    made = connected(provider)
    provider.revoke_status = 503
    revoke_connection(made.pk, by="admin:ada")
    provider.revoke_status = 200
    Connection.objects.filter(pk=made.pk).update(state="connected", access_token=b"x", connected_at=CLOCK)

    due_now()
    deliver_slow()

    assert not provider.revoked and not OutboxMessage.objects.exists()


def test_a_renewal_that_comes_after_another_process_has_renewed_ends_nothing(provider: OAuthServer) -> None:
    provider.rotates = False
    made = connected(provider, left=-5)
    with renewing(provider):
        later(made, 41)  # its claim ends
        provider.held = None
        leases._locks.clear()  # as another process, which has locks of its own
        renewed = lease("mail").token

    deliver_slow()
    assert lease("mail").token == renewed
    assert not provider.revoked


@pytest.mark.chaos
def test_a_process_that_is_killed_before_it_records_that_a_token_is_owed_leaves_a_connection_that_says_so(
    provider: OAuthServer,
) -> None:
    made = connected(provider, left=-5)
    provider.held = threading.Event()
    dying = process(WAKEFUL_FAILPOINTS="after_connection_answer=kill")
    ending = threading.Thread(target=die, args=[dying])
    ending.start()
    eventually(lambda: len(provider.given) > 2)

    said = revoke_connection(made.pk, by="admin:ada")
    provider.held.set()
    ending.join()

    assert said.endswith("If it does not come here: Remove the access there, too.")
    made.refresh_from_db()
    assert made.reason == said


def test_a_revocation_without_a_clear_answer_is_repeated(provider: OAuthServer) -> None:
    made = connected(provider)
    provider.revoke_status = 500
    revoke_connection(made.pk, by="admin:ada")
    with pytest.raises(NoAnswer):
        revocation.settle(OutboxMessage.objects.get().payload)
