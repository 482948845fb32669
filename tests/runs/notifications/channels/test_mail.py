"""Letters, and the address of the mail server."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from django.conf import settings

from runs.network.mail_server import MailServer
from runs.notifications.channels.channel import NotNow, Outcome, Sent, fault_of
from runs.notifications.channels.mail import CHANNEL
from runs.notifications.message import Item, Message
from tests.support.post_office import taking_mail, text_of

AT = datetime(2026, 11, 20, 9, tzinfo=UTC)
OPS = "mailto:ops@example.com"


def message(*texts: str, urgency: str = "normal") -> Message:
    items = [
        Item(id=n, text=text, sender="greeter", urgency=urgency, topic="", link="", at=AT)
        for n, text in enumerate(texts)
    ]
    return Message(id=UUID(int=7), to="ops", items=items)


def sent(letter: Message, monkeypatch: pytest.MonkeyPatch) -> tuple[Outcome, Any]:
    with taking_mail() as server:
        monkeypatch.setattr(settings, "EMAIL_URL", server.url)
        outcome = CHANNEL.send(OPS, letter)
    return outcome, server.letters[0] if server.letters else None


def test_any_text_arrives_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Grüße ☂\n.\n..two dots\n" + "x" * 3000 + "\nFrom here"

    outcome, letter = sent(message(text), monkeypatch)

    assert outcome == Sent()
    assert text_of(letter) == f"{text}\n— greeter, 2026-11-20 09:00 UTC"


def test_a_text_cannot_add_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    _, letter = sent(message("Hi\r\nBcc: all@example.com\r\n\r\nbody\x00"), monkeypatch)

    assert letter["Bcc"] is None
    assert letter["Subject"] == "Hi Bcc: all@example.com body"


def test_the_id_of_a_letter_is_that_of_its_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    _, letter = sent(message("a", urgency="high"), monkeypatch)

    assert letter["Message-ID"] == "<00000000-0000-0000-0000-000000000007@wakeful>"
    assert (letter["Auto-Submitted"], letter["Importance"]) == ("auto-generated", "high")


def test_a_server_without_starttls_gets_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    with taking_mail() as server:
        monkeypatch.setattr(
            settings, "EMAIL_URL", f"smtp://ada:secret-word@127.0.0.1:{server.port}/?from=a@example.com"
        )
        outcome = CHANNEL.send(OPS, message("a"))

    assert isinstance(outcome, NotNow) and "starttls" in outcome.why
    assert server.letters == []


@pytest.mark.parametrize(
    ("url", "port", "tls"),
    [
        ("smtp://host/", 25, "offered"),
        ("smtp://ada:word@host/", 587, "starttls"),
        ("smtp://ada:word@host:2525/?tls=none", 2525, "none"),
        ("smtps://ada:word@host/", 465, "ssl"),
        ("smtp://host/?tls=ssl", 465, "ssl"),
    ],
)
def test_a_password_requires_tls_unless_the_address_disables_it(url: str, port: int, tls: str) -> None:
    server = MailServer.parse(url)

    assert (server.port, server.tls) == (port, tls)


def test_an_address_of_a_server_is_read_as_url(monkeypatch: pytest.MonkeyPatch) -> None:
    server = MailServer.parse("smtp://ada%40example.com:p%2Fw@mail.example.com:2525/?tls=starttls")

    assert (server.user, server.password, server.sender) == ("ada@example.com", "p/w", "ada@example.com")
    assert "p/w" not in repr(server)


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("mail.example.com", "it does not begin with smtp:// or smtps://"),
        ("smtp://", "it has no host"),
        ("smtp://host:x", "it is not a URL"),
        ("smtp://host/?tls=maybe", "its tls is not starttls, ssl or none"),
        ("smtp://host/?form=a@b.c", "it has an option 'form'; there are tls, from and connection"),
        ("smtp://host/?from=me", "its option from is not an e-mail address"),
    ],
)
def test_an_invalid_server_address_is_refused_with_its_fault(url: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong.replace("?", r"\?")):
        MailServer.parse(url)


@pytest.mark.parametrize(
    "address", ["mailto:", "mailto:ops", "mailto:a@b.c,d@e.f", "mailto:a@b.c?cc=x", "mailto:a\n@b.c"]
)
def test_a_recipient_is_one_address(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "EMAIL_URL", "smtp://host")

    assert fault_of(address).startswith("write one e-mail address")
    assert fault_of(OPS) == ""


def test_mail_needs_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "EMAIL_URL", "")

    assert fault_of(OPS).startswith("EMAIL_URL is not set")
