"""A mailbox is read by a connection instead of a password: its token goes to the provider's server alone, and is renewed."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import transaction

from runs.connections import lease as leases
from runs.models import Connection
from tests.support.connections import connected
from tests.support.imap_server import ImapServer
from tests.support.oauth_server import OAuthServer, providing_tokens
from tests.support.secrets import forgotten as forgotten
from tests.triggers.sources.polling.conftest import Polling
from tests.triggers.sources.polling.test_mailbox import letter, subjects
from triggers.exceptions import Invalid
from triggers.sources.edit import change_source, create_source
from triggers.sources.polling import by_connection
from triggers.sources.runner import SourceError

pytestmark = pytest.mark.django_db


@pytest.fixture
def provider(settings: Any, forgotten: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[OAuthServer]:
    settings.WAKEFUL_HTTP_NETWORKS = ["127.0.0.0/8"]
    for module in (leases, by_connection):  # in the session of the test
        monkeypatch.setattr(module, "to_its_end", lambda act: act())
    monkeypatch.setattr(leases, "writing", transaction.atomic)
    with providing_tokens() as server:
        yield server


@pytest.fixture
def server(provider: OAuthServer) -> Iterator[ImapServer]:
    server = ImapServer()
    server.oauth = "AUTH=XOAUTH2"
    server.tokens = lambda: {token for grant in provider.grants for token in grant.access}
    yield server
    server.gate.set()
    server.close()


def reading(server: ImapServer, **settings: Any) -> Polling:
    where = {"host": "127.0.0.1", "port": server.port, "user": server.user, "tls": "none", "connection": "mail"}
    return Polling("imap", **{**where, **settings})


def connect(provider: OAuthServer, server: ImapServer, **more: Any) -> Connection:
    hosts = [f"127.0.0.1:{server.port}"]
    return connected(provider, settings={**provider.settings, "hosts": hosts}, **more)


def test_a_mailbox_is_read_by_a_connection(provider: OAuthServer, server: ImapServer) -> None:
    connect(provider, server)
    mail = reading(server)
    mail.poll()
    server.add(letter(1))

    assert subjects(mail.poll()) == ["Letter 1"]
    assert not any("LOGIN" in command or "PLAIN" in command for command in server.commands)
    assert not provider.asked


def test_a_token_that_the_server_refuses_is_renewed_once(provider: OAuthServer, server: ImapServer) -> None:
    connect(provider, server, left=3000)
    provider.grants[0].access.clear()

    reading(server).poll()
    assert len(provider.asked) == 1

    server.tokens = tuple
    with pytest.raises(SourceError, match="refuses the token of connection mail for anna@example.org"):
        reading(server).poll()
    assert len(provider.asked) == 1


def test_the_token_goes_to_no_other_server(provider: OAuthServer, server: ImapServer) -> None:
    connected(provider)

    with pytest.raises(SourceError, match="Connection mail sends its token to 127.0.0.1:[0-9]+ only, with TLS"):
        reading(server).poll()
    assert server.commands == []


def test_a_connection_that_gives_no_token_is_an_error_with_a_remedy(provider: OAuthServer, server: ImapServer) -> None:
    connect(provider, server, left=-5)
    provider.withdraw()

    with pytest.raises(SourceError, match="connection 'mail' is refused") as refused:
        reading(server).poll()
    assert "connect or test it" in refused.value.remedy


def test_a_server_without_oauth_says_so(provider: OAuthServer, server: ImapServer) -> None:
    connect(provider, server)
    server.oauth = ""

    with pytest.raises(SourceError, match="takes no tokens"):
        reading(server).poll()


def test_a_person_makes_no_connection_that_a_source_names_already(
    provider: OAuthServer, django_user_model: Any
) -> None:
    """The source may be another person's, who waits for the account; or the connection of this name was removed."""
    django_user_model.objects.create_user("bob", is_staff=True)
    settings = {"host": "imap.example.com", "user": "bob@example.com", "connection": "bobs"}
    create_source("mail", kind="imap", settings=settings, by="admin:eve")

    with pytest.raises(ValidationError, match="Source mail names it already"):
        connected(provider, "bobs", owner="bob")

    connected(provider, "bobs")  # of the installation


def test_the_connection_of_a_person_is_used_only_by_sources_of_that_person(
    provider: OAuthServer, django_user_model: Any
) -> None:
    django_user_model.objects.create_user("bob", is_staff=True)
    connected(provider, "bobs", owner="bob")
    settings = {"host": "imap.example.com", "user": "bob@example.com", "connection": "bobs"}

    with pytest.raises(Invalid, match="bobs belongs to bob, who alone may have a source use it"):
        create_source("mail", kind="imap", settings=settings, by="admin:eve")
    own = create_source("mail", kind="imap", settings=settings, by="admin:bob")
    change_source(own, {"enabled": False, "settings": settings}, by="admin:eve")
    for changed in ({**settings, "mailbox": "Private"}, {**settings, "connection": ""}):
        with pytest.raises(Invalid, match="bobs belongs to bob"):
            change_source(own, {"settings": changed}, by="admin:eve")
    other = create_source("other", kind="imap", settings={**settings, "connection": ""}, by="admin:eve")
    with pytest.raises(Invalid, match="bobs belongs to bob"):
        change_source(other, {"settings": settings}, by="admin:eve")
