"""A person connects their account: what they bring back from the provider counts once, for their session, and for what was asked."""

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2 as httpx
import pytest
from cryptography.fernet import Fernet
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from runs.connections import edit, protocol
from runs.connections.catalog import providers
from runs.connections.consent import NoConsent, begin_consent, connect_application, end_consent
from runs.connections.edit import change_connection, create_connection, remove_connection
from runs.connections.ending import revoke_connection, test_connection
from runs.connections.lease import lease
from runs.connections.provider import CODE
from runs.exceptions import IllegalState
from runs.models import AuditEntry, Connection, PendingConsent
from tests.support.connections import connected, everything_stored, later, new_connection
from tests.support.oauth_server import CLIENT_ID, CLIENT_SECRET, SCOPES, OAuthServer, providing_tokens

test_connection.__test__ = False  # type: ignore[attr-defined]  # a service
pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("in_this_session")]

URI = "https://wakeful.example.com/admin/connections/callback/"
SESSION = "session-secret-1234"


def go(made: Connection, *, session: str = SESSION, by: str = "admin:ada", answer: str = "allow") -> dict[str, str]:
    """Send the person to the provider; what they bring back."""
    url = begin_consent(made.pk, session=session, redirect_uri=URI, by=by)
    page = httpx.get(url.replace("/authorize", "/click") + f"&answer={answer}", follow_redirects=False)
    back = page.headers["location"]
    assert back.startswith(URI)
    return {name: values[0] for name, values in parse_qs(urlsplit(back).query).items()}


def come_back(back: dict[str, str], *, session: str = SESSION, by: str = "admin:ada", **more: str) -> Connection:
    known = {"state": back["state"], "code": back.get("code", ""), "error": back.get("error", ""), **more}
    return end_consent(session=session, by=by, **known)


def test_a_consent_connects_the_account(provider: OAuthServer) -> None:
    made = new_connection(provider)

    done = come_back(go(made))

    assert (done.state, done.granted, done.connected_by) == ("connected", list(SCOPES), "admin:ada")
    assert lease("mail").token == provider.given[-2]
    assert not PendingConsent.objects.exists()
    stored = everything_stored()
    assert not [secret for secret in [*provider.given, CLIENT_SECRET, SESSION] if secret in stored]


def test_the_state_counts_once_for_its_session_and_its_person(provider: OAuthServer) -> None:
    made = new_connection(provider)
    back = go(made)

    for wrong in ({"session": "another"}, {"by": "admin:eve"}, {"state": "guessed"}):
        with pytest.raises(NoConsent, match="unknown here"):
            come_back(back, **wrong)
    assert come_back(back).state == "connected"
    with pytest.raises(NoConsent, match="unknown here"):
        come_back(back)


def test_a_code_is_worth_nothing_without_the_verifier_of_its_state(provider: OAuthServer) -> None:
    made = new_connection(provider)
    stolen = go(made)
    own = go(new_connection(provider, "other"))

    with pytest.raises(NoConsent, match="invalid_grant"):
        come_back({**own, "code": stolen["code"]})


def test_a_consent_that_is_denied_or_late_connects_nothing(provider: OAuthServer) -> None:
    made = new_connection(provider)
    with pytest.raises(NoConsent, match="gave no consent .access_denied."):
        come_back(go(made, answer="deny"))

    back = go(made)
    PendingConsent.objects.update(expires_at="2020-01-01T00:00:00Z")
    with pytest.raises(NoConsent, match="more than ten minutes"):
        come_back(back)

    made.refresh_from_db()
    assert made.state == "new"


def test_tokens_for_another_client_than_the_one_of_now_are_not_taken(provider: OAuthServer) -> None:
    made = new_connection(provider)
    back = go(made)
    Connection.objects.filter(pk=made.pk).update(client_id="another")

    with pytest.raises(NoConsent, match="no token: the provider answers invalid_client"):
        come_back(back)


def test_an_application_is_connected_without_a_person(provider: OAuthServer) -> None:
    made = new_connection(provider, grant="client_credentials")
    with pytest.raises(IllegalState, match="without a person"):
        begin_consent(made.pk, session=SESSION, redirect_uri=URI, by="admin:ada")

    assert connect_application(made.pk, by="admin:ada").state == "connected"
    assert lease("mail").token == provider.given[-1]


def test_no_one_else_gets_the_token_of_a_persons_application(provider: OAuthServer, django_user_model: Any) -> None:
    django_user_model.objects.create_user("bob", is_staff=True)
    made = new_connection(provider, owner="bob", grant="client_credentials")

    with pytest.raises(IllegalState, match="belongs to bob, who alone may connect it"):
        connect_application(made.pk, by="admin:ada")
    assert not provider.asked
    assert connect_application(made.pk, by="admin:bob").state == "connected"


def test_endpoints_are_found_by_the_issuer(provider: OAuthServer) -> None:
    made = new_connection(provider, settings={"issuer": provider.url, "hosts": provider.host})

    assert made.settings["token_url"] == f"{provider.url}/token"
    assert come_back(go(made)).state == "connected"
    with pytest.raises(NoConsent, match="another provider"):
        come_back(go(made), issuer="https://evil.example.com")


@pytest.mark.parametrize("issuer", ["https://evil.example.com", "http://[", "https://127.0.0.1.evil.example.com"])
def test_the_answer_of_a_provider_that_was_not_asked_connects_nothing_where_no_issuer_is_known(
    issuer: str, provider: OAuthServer
) -> None:
    made = new_connection(provider)

    with pytest.raises(NoConsent, match="another provider than the one that was asked"):
        come_back(go(made), issuer=issuer)
    assert not provider.asked
    assert come_back(go(made), issuer=provider.url).state == "connected"


def test_a_key_that_is_missing_is_said_to_the_person_who_connects(provider: OAuthServer, settings: Any) -> None:
    made = new_connection(provider, client_secret="")
    back = go(made)

    settings.WAKEFUL_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]
    with pytest.raises(IllegalState, match="no key of WAKEFUL_ENCRYPTION_KEYS decrypts"):
        come_back(back)
    settings.WAKEFUL_ENCRYPTION_KEYS = []
    with pytest.raises(IllegalState, match="WAKEFUL_ENCRYPTION_KEYS is empty"):
        go(made)


def test_an_edit_keeps_how_the_client_proves_itself_where_discovery_has_found_it(
    provider: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = protocol.metadata(provider.url)
    methods = {"token_endpoint_auth_methods_supported": ["client_secret_post"]}
    monkeypatch.setattr(edit, "metadata", lambda issuer: {**found, **methods})
    made = new_connection(provider, settings={"issuer": provider.url, "hosts": provider.host})
    Connection.objects.filter(pk=made.pk).update(scopes=[])
    of_form = {name: value for name, value in made.settings.items() if name != "auth_method"}

    change_connection(made.pk, client_id=CLIENT_ID, client_secret="", scopes=SCOPES, settings=of_form, by="admin:ada")

    made.refresh_from_db()
    assert (made.settings["auth_method"], made.scopes) == ("client_secret_post", list(SCOPES))


def test_a_revoked_connection_is_revoked_at_the_provider_and_gives_nothing(provider: OAuthServer) -> None:
    made = connected(provider)
    refresh = provider.given[1]

    assert revoke_connection(made.pk, by="admin:ada") == "Revoked, here and at Other (OAuth 2 or OpenID Connect)."

    made.refresh_from_db()
    assert (made.state, made.access_token, made.refresh_token) == ("revoked", None, None)
    assert provider.revoked == [refresh]


def test_a_provider_that_is_away_keeps_no_one_from_revoking(provider: OAuthServer) -> None:
    made = connected(provider)
    provider.server.shutdown()
    provider.server.server_close()

    said = revoke_connection(made.pk, by="admin:ada")

    made.refresh_from_db()
    assert made.state == "revoked" and "has not revoked them: ConnectionRefusedError" in said


def test_a_test_asks_the_provider(provider: OAuthServer) -> None:
    made = connected(provider)
    later(made, 60)
    assert test_connection(made.pk, by="admin:ada") == "It works: the provider has given a token."
    assert len(provider.asked) == 1

    later(made, 60)
    provider.status = 502
    with pytest.raises(IllegalState, match="it answers 502"):
        test_connection(made.pk, by="admin:ada")


@pytest.mark.parametrize(
    ("fields", "wrong"),
    [
        ({"name": "My Mail"}, "name"),
        ({"client_id": ""}, "client_id"),
        ({"owner": "no one"}, "owner"),
        ({"provider": "acme"}, "provider"),
        ({"provider": "google", "grant": "client_credentials"}, "grant"),
        ({"settings": {"token_url": "http://example.com/token", "hosts": "example.com"}}, "token_url"),
        ({"settings": {"token_url": "https://a@example.com/token", "hosts": "example.com"}}, "token_url"),
        ({"settings": {"token_url": "https://example.com/token", "hosts": "example.com"}}, "authorize_url"),
        ({"settings": {"token_url": "https://example.com/token", "hosts": "*"}}, "hosts"),
        ({"settings": {"issuer": "https://192.0.2.1", "hosts": "example.com"}}, "issuer"),
        ({"scopes": ["mail read"]}, "scopes"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_connection_that_cannot_work_is_refused_at_its_field(
    fields: dict[str, Any], wrong: str, provider: OAuthServer
) -> None:
    with pytest.raises(ValidationError) as refused:
        new_connection(provider, **{"name": "mail", **fields})

    assert list(refused.value.message_dict) == [wrong]
    assert not Connection.objects.exists()


def test_who_may_edit_cannot_have_secrets_sent_elsewhere(provider: OAuthServer) -> None:
    made = connected(provider)
    given: dict[str, Any] = {"client_id": CLIENT_ID, "client_secret": "", "scopes": SCOPES, "by": "admin:eve"}

    with pytest.raises(ValidationError, match="Enter the secret again"):
        change_connection(made.pk, **given, settings={**provider.settings, "hosts": ["evil.example.com"]})
    change_connection(made.pk, **given, settings=provider.settings)
    assert lease("mail").token

    changed = change_connection(
        made.pk, **{**given, "client_secret": "another"}, settings={**provider.settings, "hosts": ["evil.example.com"]}
    )
    assert (changed.state, changed.access_token, changed.refresh_token) == ("new", None, None)


@pytest.mark.parametrize("secret", ["", CLIENT_SECRET], ids=["public", "confidential"])
def test_the_code_of_a_consent_does_not_go_where_the_connection_was_sent_meanwhile(
    secret: str, provider: OAuthServer
) -> None:
    made = new_connection(provider, client_secret=secret)
    back = go(made)
    given: dict[str, Any] = {"client_id": CLIENT_ID, "client_secret": secret and "another", "scopes": SCOPES}

    with providing_tokens() as evil:
        elsewhere = {**provider.settings, "token_url": f"{evil.url}/token"}
        change_connection(made.pk, **given, settings=elsewhere, by="admin:eve")

        with pytest.raises(NoConsent, match="unknown here"):
            come_back(back)
        assert not evil.asked


def test_each_edit_is_audited_without_secrets(provider: OAuthServer) -> None:
    made = new_connection(provider)
    come_back(go(made))
    later(made, 60)
    test_connection(made.pk, by="admin:ada")
    revoke_connection(made.pk, by="admin:ada")
    remove_connection(made.pk, by="admin:ada")

    entries = AuditEntry.objects.filter(kind="connection").order_by("id")
    assert [entry.action for entry in entries] == ["create", "send to provider", "connect", "test", "revoke", "remove"]


@pytest.mark.parametrize(
    "columns",
    [
        {"state": "on"},
        {"state": "connected"},
        {"state": "refused", "reason": ""},
        {"state": "revoked", "access_token": b"x"},
        {"claim": "00000000-0000-0000-0000-000000000001"},
    ],
    ids=str,
)
def test_the_database_refuses_a_state_that_cannot_be(columns: dict[str, Any], provider: OAuthServer) -> None:
    made = new_connection(provider)

    with pytest.raises(IntegrityError), transaction.atomic():
        Connection.objects.filter(pk=made.pk).update(**columns)


@pytest.mark.parametrize("name", providers())
def test_each_provider_says_what_it_allows_and_how_it_is_set_up(name: str) -> None:
    one = providers()[name].at({"tenant": "0f0f", "hosts": ["api.example.com"]})

    assert one.hosts and one.setup and one.label
    assert any("{redirect_uri}" in step for step in one.setup) is (CODE in one.grants)
    assert all(scope.words[0].isupper() for scope in one.scopes)
    assert (
        name in ("generic", "github_app")
        or one.authorize_url.startswith("https://")
        and "{" not in one.authorize_url + one.token_url
    )


def test_names_are_taken_once(provider: OAuthServer) -> None:
    new_connection(provider)

    with pytest.raises(ValidationError, match="Another connection has this name"):
        create_connection(
            name="mail", provider="github", client_id="x", client_secret="y", by="admin:ada", scopes=["repo"]
        )
