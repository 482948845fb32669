"""Who is answered by mail: the sender of a message, if the operator has named it, and never a program."""

from email.message import EmailMessage
from typing import Any

import pytest

from triggers.models import Event
from triggers.sources.kind import kinds
from triggers.sources.mail import read_mail
from triggers.sources.replies import Answer, Unanswerable
from triggers.sources.settings import InvalidSettings

SETTINGS = {"host": "imap.example.com", "user": "orders@example.com", "reply": "ask", "answers_to": "*"}


@pytest.fixture(autouse=True)
def server(settings: Any) -> None:
    settings.EMAIL_URL = "smtp://127.0.0.1:2525/?tls=none&from=wakeful@example.com"


def message(text: str = "How many?", **headers: str) -> Event:
    """The event of a mail with these headers; of an empty one there is none."""
    given = {"From": "Ada <Ada@Example.org>", "Subject": "Orders", "Message-ID": "<2@example.org>"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    mail = EmailMessage()
    for name, value in given.items():
        if value:
            mail[name] = value
    mail.set_content(text)
    return Event(type="mail.received", ce_id="message:1", data=read_mail(mail.as_bytes()).data)


def answer(event: Event, kind: str = "imap", **settings: str) -> Answer:
    found = kinds()[kind]
    return found.answer_to(event, found.clean_settings({**(SETTINGS if kind == "imap" else {}), **settings}))


def test_a_message_is_answered_to_its_sender_in_its_thread() -> None:
    found = answer(message(References="<0@example.org> <1@example.org>", In_Reply_To="<1@example.org>"))

    assert found.to == {
        "host": "smtp",
        "address": "ada@example.org",
        "reply_to": "orders@example.com",
        "subject": "Re: Orders",
        "in_reply_to": "<2@example.org>",
        "references": ["<0@example.org>", "<1@example.org>", "<2@example.org>"],
    }
    assert (found.name, found.asks) == ("mail to ada@example.org", True)


@pytest.mark.parametrize("kind", ["gmail", "microsoft_mail"])
def test_so_is_one_of_a_mailbox_that_is_read_by_a_connection(kind: str) -> None:
    chosen = {"connection": "me", "reply": "yes", "answers_to": "example.org", "mailbox_address": "Me@example.com"}

    found = answer(message(), kind, **chosen)

    assert (found.to["address"], found.to["reply_to"], found.asks) == ("ada@example.org", "me@example.com", False)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"Auto_Submitted": "auto-replied"}, "a list or a program"),
        ({"Auto_Submitted": "auto-generated; of=me"}, "a list or a program"),
        ({"Precedence": "bulk"}, "a list or a program"),
        ({"Precedence": "list"}, "a list or a program"),
        ({"List_Id": "<news.example.org>"}, "a list or a program"),
        ({"Return_Path": "<>"}, "a list or a program"),
        ({"From": "MAILER-DAEMON@example.org"}, "no person reads"),
        ({"From": "no-reply@example.org"}, "no person reads"),
        ({"From": "noreply+7@example.org"}, "no person reads"),
        ({"From": "Orders@Example.com"}, "an address of this installation"),
        ({"From": "wakeful@example.com"}, "an address of this installation"),
        ({"From": ""}, "names no sender"),
        ({"From": "ada@[10.0.0.1]"}, "names no sender"),
        ({"From": "ada@localhost"}, "names no sender"),
        ({"From": "victim%elsewhere.net@example.org"}, "names no sender"),
        ({"From": '"a b"@example.org'}, "names no sender"),
        ({"Reply_To": "eve@evil.example"}, "Reply-To leads elsewhere"),
        ({"Reply_To": "ada@example.org, eve@evil.example"}, "Reply-To leads elsewhere"),
        ({"Reply_To": "eve@sub.example.org"}, "Reply-To leads elsewhere"),
        ({"Reply_To": "orders@example.com", "From": "eve@example.com"}, "an address of this installation"),
    ],
)
def test_what_a_program_has_sent_or_what_leads_elsewhere_is_not_answered(headers: dict[str, str], why: str) -> None:
    with pytest.raises(Unanswerable, match=why):
        answer(message(**headers))


def test_the_sender_may_wish_the_answer_at_another_address_of_its_domain() -> None:
    assert answer(message(Reply_To="Bob <bob@example.org>")).to["address"] == "bob@example.org"


@pytest.mark.parametrize("named", ["ada@example.org", "bob@example.org, example.org", "EXAMPLE.ORG"])
def test_those_are_answered_whom_the_operator_has_named(named: str) -> None:
    assert answer(message(), answers_to=named, reply="yes").to["address"] == "ada@example.org"


@pytest.mark.parametrize("named", ["bob@example.org", "example.net", "ple.org", "sub.example.org"])
def test_no_one_else_is(named: str) -> None:
    with pytest.raises(Unanswerable, match="names neither ada@example.org nor example.org"):
        answer(message(), answers_to=named)


def test_a_thread_that_agents_have_answered_many_times_is_left_to_a_person() -> None:
    ids = [one for n in range(20) for one in (f"<{n}@example.org>", f"<{n}@wakeful>")]

    assert answer(message(References=" ".join(ids[:-1])))
    with pytest.raises(Unanswerable, match="answered 20 times in this thread"):
        answer(message(References=" ".join(ids)))


def test_who_names_the_thread_of_another_person_does_not_enter_that_conversation() -> None:
    mine = answer(message(References="<1@example.org>"))
    again = answer(message(References="<1@example.org> <2@example.org>", Message_ID="<3@example.org>"))
    other = answer(message(References="<1@example.org>", From="eve@evil.example"))

    assert mine.thread == again.thread
    assert other.thread != mine.thread


@pytest.mark.parametrize(
    ("subject", "wanted"),
    [
        ("Re: Orders", "Re: Orders"),
        ("AW: Orders", "AW: Orders"),
        ("", "Re:"),
        ("=?utf-8?q?a=0D=0ABcc:_b=40c.de?=", "Re: a Bcc: b@c.de"),
    ],
)
def test_the_subject_is_one_line_and_says_re_once(subject: str, wanted: str) -> None:
    raw = f"From: ada@example.org\r\nSubject: {subject}\r\n\r\nHello".encode()
    event = Event(type="mail.received", ce_id="message:1", data=read_mail(raw).data)

    found = answer(event)

    assert found.to["subject"] == wanted
    assert (found.to["in_reply_to"], found.to["references"]) == ("", [])


@pytest.mark.parametrize(
    ("chosen", "named"),
    [
        ({"reply": "yes"}, "answers_to"),
        ({"reply": "ask", "answers_to": ""}, "answers_to"),
        ({"reply": "ask", "answers_to": "not an address!"}, "answers_to"),
        ({"reply": "ask", "user": "ada"}, "mailbox_address"),
        ({"mailbox_address": "ada"}, "mailbox_address"),
    ],
)
def test_the_settings_name_who_may_be_answered_and_where_the_next_message_goes(
    chosen: dict[str, str], named: str
) -> None:
    with pytest.raises(InvalidSettings) as refused:
        kinds()["imap"].clean_settings({**SETTINGS, **chosen})

    assert list(refused.value.errors) == [named]


def test_mailboxes_are_not_answered_unless_an_operator_has_decided_it() -> None:
    with pytest.raises(Unanswerable, match="“Reply” is “no”"):
        answer(message(), reply="no")


def test_without_a_mail_server_the_reason_is_named(settings: Any) -> None:
    settings.EMAIL_URL = ""

    with pytest.raises(Unanswerable, match="EMAIL_URL"):
        answer(message())
