"""A person makes, connects, tests and revokes a connection in the admin, and no page shows a secret."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2 as httpx
import pytest
from django.db import transaction
from django.test import Client

from runs.connections import consent
from runs.connections import lease as leases
from runs.models import Connection
from tests.config.console.conftest import LogIn
from tests.support.api import Api
from tests.support.connections import connected, later, new_connection
from tests.support.console import list_of, page_of
from tests.support.github_app import APP, INSTALLATION, serving_github_app
from tests.support.oauth_server import CLIENT_ID, CLIENT_SECRET, OAuthServer, providing_tokens
from tests.support.rsa_keys import pem
from tests.support.secrets import forgotten as forgotten
from triggers.models import Source

LIST = list_of("runs_connection")
CALLBACK = "/admin/connections/callback/"


@pytest.fixture
def provider(settings: Any, forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OAuthServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    settings.WAKEFUL_URL = "https://wakeful.example.com"
    monkeypatch.setattr(consent, "to_its_end", lambda act: act())  # in the session of the test
    with providing_tokens() as server:
        yield server


def press(client: Client, connection: Connection, button: str) -> Any:
    return client.post(
        f"/admin/runs/connection/{connection.pk}/{button}/", {"_form_submitted": "1"}, follow=button != "connect"
    )


def consented(client: Client, connection: Connection, answer: str = "allow") -> str:
    """Where the provider sends the browser back to."""
    sent = press(client, connection, "connect")
    there = sent.headers.get("Location") or sent.headers["HX-Redirect"]
    back = httpx.get(there.replace("/authorize", "/click") + f"&answer={answer}").headers["location"]
    assert back.startswith(f"https://wakeful.example.com{CALLBACK}?")
    return CALLBACK + "?" + urlsplit(back).query


def test_a_connection_is_made_connected_tested_and_revoked(admin: Client, provider: OAuthServer) -> None:
    assert "Connect Google" in admin.get(f"{LIST}add/").content.decode()
    form = {
        "name": "mail", "client_id": CLIENT_ID, "client_secret": CLIENT_SECRET, "owner": "", "grant": "authorization_code",
        "more_scopes": "mail.read mail.send", "setting_issuer": provider.url, "setting_hosts": provider.host,
    }  # fmt: skip
    made = admin.post(f"{LIST}add/?provider=generic", form, follow=True)
    assert "never connected" in made.content.decode(), made.context["form"].errors
    connection = Connection.objects.get()

    done = admin.get(consented(admin, connection), follow=True)

    page = done.content.decode()
    assert "Connection mail is connected." in page and "mail.read" in page
    page += press(admin, connection, "revoke").content.decode()
    connection.refresh_from_db()
    assert connection.state == "revoked" and provider.revoked
    page += admin.get(LIST).content.decode() + admin.get("/admin/runs/auditentry/").content.decode()
    assert not [secret for secret in [*provider.given, CLIENT_SECRET] if secret in page]


def test_the_set_up_at_google_names_the_redirect_uri_and_the_scopes_in_words(
    admin: Client, provider: OAuthServer
) -> None:
    page = admin.get(f"{LIST}add/?provider=google").content.decode()

    assert f"https://wakeful.example.com{CALLBACK}" in page
    assert "Read your mail" in page and "Read and change the events of your calendars" in page


def test_faults_stand_at_their_fields(admin: Client, provider: OAuthServer) -> None:
    page = admin.post(f"{LIST}add/?provider=generic", {"name": "Mail", "client_id": "x", "grant": "authorization_code"})

    assert "name" in page.context["form"].errors
    form = {"name": "mail", "client_id": "x", "grant": "authorization_code", "setting_token_url": "http://example.com"}
    page = admin.post(f"{LIST}add/?provider=generic", form)
    assert {"setting_token_url", "setting_hosts"} <= set(page.context["form"].errors)


def test_the_answer_of_another_session_connects_nothing(admin: Client, log_in: LogIn, provider: OAuthServer) -> None:
    connection = new_connection(provider)
    back = consented(admin, connection)

    other = log_in(name="eve").get(back, follow=True)

    assert "another session asked for it" in other.content.decode()
    connection.refresh_from_db()
    assert connection.state == "new"
    assert admin.post(back).status_code == 405
    assert "is connected" in admin.get(back, follow=True).content.decode()
    assert "was used already" in admin.get(back, follow=True).content.decode()


def test_the_code_stands_in_no_address_of_a_person_whose_session_has_ended(
    admin: Client, provider: OAuthServer
) -> None:
    back = consented(admin, new_connection(provider))
    admin.logout()

    sent = admin.get(back)

    assert sent.status_code == 302 and sent.headers["Location"].startswith("/admin/login/?next=")
    assert not [one for one in urlsplit(back).query.split("&") if one.partition("=")[2] in sent.headers["Location"]]


def test_a_person_who_says_no_comes_back_to_a_sentence(admin: Client, provider: OAuthServer) -> None:
    connection = new_connection(provider)

    page = admin.get(consented(admin, connection, "deny"), follow=True).content.decode()

    assert "gave no consent (access_denied)" in page


def test_a_connection_of_a_person_is_visible_to_that_person_who_alone_connects_it(
    admin: Client, log_in: LogIn, provider: OAuthServer
) -> None:
    bob = log_in("runs.view_run", name="bob")
    assert bob.get(LIST).status_code == 403
    own = connected(provider, "bobs", owner="bob")
    other = connected(provider, "office")

    page = bob.get(LIST).content.decode()

    assert "bobs" in page and "office" not in page
    assert bob.get(page_of("runs_connection", own)).status_code == 200
    assert bob.get(page_of("runs_connection", other)).status_code != 200
    assert press(bob, own, "revoke").status_code == 403
    assert b"Connect</" not in admin.get(page_of("runs_connection", own)).content
    press(admin, own, "connect")
    assert not own.pending_consents.exists()


def test_a_source_of_someone_else_that_would_use_the_connection_of_a_person_is_refused_on_its_form(
    admin: Client, log_in: LogIn, provider: OAuthServer
) -> None:
    log_in(name="bob")
    connected(provider, "bobs", owner="bob")
    form = {"choice": "imap", "slug": "in", "enabled": "on", "imap__host": "imap.example.com", "imap__port": "993"}
    form |= {"imap__tls": "tls", "imap__user": "bob", "imap__connection": "bobs", "imap__mailbox": "INBOX"}
    form |= {"imap__every": "60s", "imap__begin_with": "new"}

    page = admin.post("/admin/triggers/source/add/", form)

    assert "bobs belongs to bob, who alone may have a source use it" in page.content.decode(), page.context[
        "form"
    ].errors
    assert not Source.objects.filter(slug="in").exists()


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            {"state": "refused", "reason": "the provider answers invalid_grant"},
            "refuses to renew its access. Connect it again",
        ),
        ({"state": "expired", "reason": "no refresh token"}, "has expired, and nothing can renew it"),
        ({"state": "revoked"}, "was revoked here"),
    ],
)
def test_a_state_is_said_in_words(columns: dict[str, Any], words: str, admin: Client, provider: OAuthServer) -> None:
    connection = new_connection(provider)
    Connection.objects.filter(pk=connection.pk).update(**columns)

    page = admin.get(page_of("runs_connection", connection)).content.decode()

    assert words in page and columns.get("reason", "") in page


def test_the_api_lists_tests_and_revokes_connections_and_shows_no_secret(
    db: None, provider: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "to_its_end", lambda act: act())
    monkeypatch.setattr(leases, "writing", transaction.atomic)
    made = connected(provider)
    later(made, 60)
    api = Api()

    [row] = api.get("connections/").body["results"]
    answers = [row, api.get(f"connections/{made.pk}/").body]
    answers += [api.post(f"connections/{made.pk}/{verb}/").body for verb in ("test", "revoke", "revoke")]

    assert (row["name"], row["state"], row["granted"]) == ("mail", "connected", ["mail.read", "mail.send"])
    assert answers[2] == {"outcome": "It works: the provider has given a token."}
    assert answers[3] == {"outcome": "Revoked, here and at Other (OAuth 2 or OpenID Connect)."}
    assert answers[4]["detail"] == "it is not connected"
    assert len(provider.given) == 4
    assert not [secret for secret in [*provider.given, CLIENT_SECRET] if secret in str(answers)]


def test_an_installation_of_a_github_app_is_connected_without_a_login(
    admin: Client, provider: OAuthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = pem()
    form = {"name": "github", "owner": "", "client_id": APP, "client_secret": key, "setting_installation": "x"}
    with serving_github_app(monkeypatch):
        wrong = admin.post(f"{LIST}add/?provider=github_app", form).content.decode()
        assert "Enter a number." in wrong and "Private key" in wrong and "redirect URI" not in wrong

        made = admin.post(
            f"{LIST}add/?provider=github_app", {**form, "setting_installation": INSTALLATION}, follow=True
        )
        page = made.content.decode() + press(admin, Connection.objects.get(), "get_token").content.decode()

    connection = Connection.objects.get()
    assert (connection.state, connection.grant) == ("connected", "client_credentials")
    assert "See whether checks pass" in page
    assert not [part for part in key.splitlines()[1:-1] if part in wrong + page]
