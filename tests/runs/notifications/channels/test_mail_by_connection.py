"""Mail is sent by a connection instead of a password: its token goes to the provider's server alone, and is renewed once."""

from collections.abc import Iterator
from typing import Any

import pytest

from agents.exceptions import NotConnected, ProviderAway
from agents.kernel import connecting
from agents.kernel.connecting import Lease
from runs.connections.lease import lease
from runs.models import Connection
from runs.network.mail_server import MailServer as Address
from runs.notifications.channels.channel import NotNow, Outcome, Sent
from runs.notifications.channels.mail import CHANNEL
from tests.runs.notifications.channels.test_mail import OPS, message
from tests.support.connections import connected
from tests.support.oauth_server import OAuthServer, providing_tokens
from tests.support.post_office import MailServer, taking_mail
from tests.support.secrets import forgotten as forgotten


@pytest.fixture
def server(settings: Any) -> Iterator[MailServer]:
    with taking_mail() as server:
        settings.EMAIL_URL = f"smtp://ada%40example.com@127.0.0.1:{server.port}/?tls=none&connection=mail"
        yield server


@pytest.fixture
def provider(settings: Any, forgotten: None) -> Iterator[OAuthServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    connecting.connect(lease)
    with providing_tokens() as provider:
        yield provider


def connect(provider: OAuthServer, server: MailServer, **more: Any) -> Connection:
    server.tokens = lambda: {token for grant in provider.grants for token in grant.access}
    hosts = [f"127.0.0.1:{server.port}"]
    return connected(provider, settings={**provider.settings, "hosts": hosts}, **more)


def send() -> Outcome:
    return CHANNEL.send(OPS, message("Hi"))


def refusing(error: Exception) -> Any:
    def lease(name: str, /, **_: Any) -> Lease:
        raise error

    return lease


@pytest.mark.django_db(transaction=True)
def test_a_letter_is_sent_by_the_token_of_a_connection(provider: OAuthServer, server: MailServer) -> None:
    connect(provider, server)

    assert send() == Sent()
    assert [one["From"] for one in server.letters] == ["Wakeful <ada@example.com>"]
    assert server.verbs.count("AUTH") == 1 and not provider.asked


@pytest.mark.django_db(transaction=True)
def test_a_token_that_the_server_refuses_is_renewed_once(provider: OAuthServer, server: MailServer) -> None:
    connect(provider, server, left=3000)
    provider.grants[0].access.clear()

    assert send() == Sent() and len(server.letters) == 1
    assert server.verbs.count("AUTH") == 2 and len(provider.asked) == 1

    server.tokens = lambda: ()
    outcome = send()
    assert isinstance(outcome, NotNow) and "refuses the token of connection mail" in outcome.why
    assert len(server.letters) == 1 and len(provider.asked) == 1


@pytest.mark.django_db(transaction=True)
def test_the_token_goes_to_no_server_of_another_provider(provider: OAuthServer, server: MailServer) -> None:
    connected(provider)

    outcome = send()

    assert isinstance(outcome, NotNow) and "sends its token to" in outcome.why
    assert server.connections == 0


@pytest.mark.parametrize("error", [NotConnected("connection 'mail' is revoked"), ProviderAway("not just now")])
def test_without_a_token_the_letter_waits(
    server: MailServer, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(connecting._port, "lease", refusing(error))

    assert send() == NotNow(why=str(error))
    assert server.connections == 0


def test_a_fault_of_the_lease_is_no_fault_of_the_letter(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting._port, "lease", refusing(NotConnected("the database is away")))

    assert isinstance(send(), NotNow)


def test_a_server_that_knows_no_tokens_gets_none(server: MailServer, monkeypatch: pytest.MonkeyPatch) -> None:
    given = Lease(token="secret-token", hosts=[f"127.0.0.1:{server.port}"])
    monkeypatch.setattr(connecting._port, "lease", lambda name, **_: given)

    outcome = send()

    assert isinstance(outcome, NotNow) and "AUTH=XOAUTH2" in outcome.why
    assert "AUTH" not in server.verbs and server.letters == []


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("smtp://ada:word@host/?connection=mail", "without a password"),
        ("smtp://host/?connection=mail", "with a user"),
        ("smtp://ada@host/?connection=My mail", "the name of one"),
        ("smtp://ada@host/?connection=mail&tls=none&from=a@b.c", "with TLS only"),
        ("smtp://ada@host/?connection=mail&tls=offered&from=a@b.c", "with TLS only"),
    ],
)
def test_an_address_that_cannot_sign_in_by_a_connection_is_refused(url: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        Address.parse(url)


def test_a_connection_signs_in_by_starttls_unless_the_address_has_tls_from_the_first_byte() -> None:
    google = Address.parse("smtps://ada%40gmail.com@smtp.gmail.com/?connection=gmail")
    microsoft = Address.parse("smtp://ada%40example.com@smtp.office365.com/?connection=outlook")

    assert (google.port, google.tls, google.connection) == (465, "ssl", "gmail")
    assert (microsoft.port, microsoft.tls, microsoft.sender) == (587, "starttls", "ada@example.com")
