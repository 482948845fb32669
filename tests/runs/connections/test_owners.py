"""A connection of a person belongs to their user: it goes with them, and another user of the same name does not get it."""

from collections.abc import Callable
from importlib import import_module

import pytest
from django.apps import apps
from django.contrib.auth.models import User
from django.db import connection as database
from django.db.models.signals import pre_delete
from django.test import Client

from agents.exceptions import NotConnected
from config import wiring
from runs.connections.consent import begin_consent
from runs.connections.lease import lease
from runs.db.sql import execute
from runs.exceptions import IllegalState
from runs.models import AuditEntry, Connection, OutboxMessage, PendingConsent
from runs.outbox import deliver_slow
from tests.runs.connections.test_revocation import renewing
from tests.support.connections import connected
from tests.support.oauth_server import OAuthServer

pytestmark = pytest.mark.django_db(transaction=True)


DELETE = "DELETE FROM auth_user WHERE id = %s"


def make_ada() -> User:
    return User.objects.create_user("ada", is_staff=True)


def send_to_provider(made: Connection) -> str:
    return begin_consent(made.pk, session="s", redirect_uri="https://example.com/back", by="admin:ada")


def test_with_a_user_go_their_connections_which_are_revoked_at_the_provider(provider: OAuthServer) -> None:
    ada = make_ada()
    made = connected(provider, owner="ada")
    refresh = provider.given[1]

    ada.delete()
    make_ada()

    assert not Connection.objects.exists()
    with pytest.raises(NotConnected, match="there is no connection 'mail'"):
        lease("mail")
    assert deliver_slow() == 1
    assert provider.revoked == [refresh] and not OutboxMessage.objects.exists()
    assert AuditEntry.objects.filter(by="wakeful", action="remove", object_id=str(made.pk)).exists()


def test_connections_go_also_with_a_user_who_is_deleted_without_this_code(provider: OAuthServer) -> None:
    ada = make_ada()
    send_to_provider(connected(provider, owner="ada"))
    connected(provider, "office")

    execute(DELETE, [ada.pk])

    assert [made.name for made in Connection.objects.all()] == ["office"]
    assert not PendingConsent.objects.exists()


def test_a_user_who_gets_the_former_name_of_another_one_does_not_get_their_connections(
    provider: OAuthServer, client: Client
) -> None:
    ada = make_ada()
    made = connected(provider, owner="ada")
    ada.username = "eve"
    ada.save()
    client.force_login(make_ada())

    with pytest.raises(NotConnected, match="belongs to 'ada', who may not log in"):
        lease("mail")
    with pytest.raises(IllegalState, match="belongs to ada, who alone may connect it"):
        send_to_provider(made)
    assert client.get("/admin/runs/connection/").status_code == 403


def test_the_connection_of_a_user_who_was_deleted_before_the_upgrade_gives_no_token(provider: OAuthServer) -> None:
    make_ada()
    made = connected(provider, owner="ada")
    Connection.objects.update(owner_user=None)

    with pytest.raises(NotConnected, match="names ada, and no user that it was made for.*Delete it, and add it again"):
        lease("mail")
    with pytest.raises(IllegalState, match="names ada, and no user that it was made for"):
        send_to_provider(made)


@pytest.mark.parametrize(
    "delete", [lambda ada: ada.delete(), lambda ada: execute(DELETE, [ada.pk])], ids=["here", "sql"]
)
def test_a_token_that_comes_while_its_user_is_deleted_is_revoked_as_well(
    provider: OAuthServer, delete: Callable[[User], object]
) -> None:
    ada = make_ada()
    connected(provider, owner="ada", left=-5)

    with renewing(provider):
        delete(ada)
    while deliver_slow():
        pass

    assert provider.given[-1] in provider.revoked
    assert not provider.grants
    assert not OutboxMessage.objects.exists()


def test_where_the_provider_has_no_address_for_revocation_the_audit_log_names_what_is_left_to_do(
    provider: OAuthServer,
) -> None:
    ada = make_ada()
    connected(provider, owner="ada", settings={k: v for k, v in provider.settings.items() if k != "revoke_url"})

    ada.delete()

    entry = AuditEntry.objects.get(by="wakeful", action="remove")
    assert "has no address for revocation. Remove the access there, too" in entry.detail["outcome"]


def test_a_user_who_is_deleted_by_a_proxy_of_their_model_has_their_connections_revoked() -> None:
    class Guest(User):
        class Meta:
            app_label = "auth"
            proxy = True

    wiring.connect()
    try:
        assert pre_delete.has_listeners(Guest)
    finally:
        pre_delete.disconnect(wiring.end_connections, sender=Guest)
        del apps.all_models["auth"]["guest"]
        apps.clear_cache()


@pytest.mark.django_db(transaction=False)
def test_in_a_new_database_the_field_of_the_name_may_come_in_a_later_migration_of_the_users(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where the app of the users is called `staff`: the migrations of `runs` come before all but the first of it."""
    bind_to_users = import_module("runs.migrations.0023_connections_of_users").bind_to_users
    monkeypatch.setattr(User, "USERNAME_FIELD", "later")

    with database.schema_editor() as editor:
        editor.execute("ALTER TABLE runs_connection DROP CONSTRAINT connection_of_user")
        bind_to_users(apps, editor)
