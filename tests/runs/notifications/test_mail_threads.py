"""A run answers a mail: to its sender, in its thread, once."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import transaction
from pydantic_ai import Agent as LlmAgent

from agents import AgentRun
from agents.tools import toolbox
from runs.actions.approve import decide
from runs.models import Approval, Delivery, Notification
from runs.notifications.deliver import Deliverer
from runs.notifications.resolve import resolve
from runs.retention.erasure import erase_runs
from tests.support.durable import Lab, lab
from tests.support.llm import Turns
from tests.support.notifying import delivered, make_due
from tests.support.post_office import MailServer, taking_mail, text_of
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Event, Source
from triggers.sources.mail import read_mail

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)

LONG_ID = f"<{'x' * 120}@example.org>"
MAIL = (
    f"From: Ada <ada@example.org>\r\nSubject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r\nMessage-ID: {LONG_ID}\r\n"
    "References: <1@example.org>\r\n\r\nHow many?\r\n"
)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MailServer]:
    with taking_mail() as server:
        monkeypatch.setattr(settings, "EMAIL_URL", server.url)
        yield server


def mail(reply: str = "yes") -> Event:
    chosen = {"host": "imap.example.com", "user": "orders@example.com", "reply": reply, "answers_to": "example.org"}
    source = Source.objects.create(slug="mail", kind="imap", settings=chosen)
    return make_event(source_id=source.pk, data=read_mail(MAIL.encode()).data)


def woken(lab: Lab, body: Any, event: Event) -> Any:
    lab.declare(body, "clerk", durable=True)
    return lab.go_on(make_run(event_ids=[event.id], trigger="clerk", policy={"retries": 0, "durable": True}))


def answering(run: AgentRun) -> None:
    run.reply("Four.\n.\nRegards")


def test_a_mail_is_answered_once_in_its_thread(lab: Lab, server: MailServer) -> None:
    run = woken(lab, answering, mail())

    delivered()
    delivered(Deliverer())

    assert (run.status, run.error) == ("succeeded", "")
    [letter] = server.letters
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.name, text_of(letter)) == ("sent", "mail to ada@example.org", "Four.\n.\nRegards")
    assert (letter["To"], letter["From"]) == ("ada@example.org", "Wakeful <wakeful@example.com>")
    assert (letter["Reply-To"], letter["Subject"]) == ("orders@example.com", "Re: Grüße")
    assert letter["In-Reply-To"] == LONG_ID
    assert letter["References"].split() == ["<1@example.org>", LONG_ID]
    assert letter["Message-ID"] == f"<{delivery.pk}@wakeful>"
    assert letter["Auto-Submitted"] == "auto-replied"


def test_an_answer_is_itself_not_answered(lab: Lab, server: MailServer) -> None:
    woken(lab, answering, mail())
    delivered()

    assert read_mail(server.letters[0].as_bytes()).data["is_automatic"]


def test_an_answer_that_comes_again_has_the_same_id(lab: Lab, server: MailServer) -> None:
    server.manner = "cut"
    woken(lab, answering, mail())
    delivered()
    make_due()
    delivered(Deliverer())
    assert (Delivery.objects.get().status, len(server.letters)) == ("unknown", 1)

    server.manner = "take"
    resolve(Delivery.objects.get().pk, outcome="send_again", by="ada")
    delivered()

    assert Delivery.objects.get().status == "sent"
    assert len({letter["Message-ID"] for letter in server.letters}) == 1 < len(server.letters)


def test_who_approves_an_answer_sees_the_address_that_gets_it(lab: Lab, server: MailServer) -> None:
    turns = Turns([("reply", {"text": "Four."})], "done")

    def talking(run: AgentRun) -> None:
        run.llm(LlmAgent(turns.model, name="clerk", tools=[toolbox.get("reply")]), "Answer.", deps=run, untrusted="Hi")

    run = woken(lab, talking, mail(reply="ask"))
    asked = Approval.objects.get()
    assert (asked.arguments, server.letters) == ({"text": "Four."}, [])
    assert asked.detail == (
        "It answers there: mail to ada@example.org. The run has seen untrusted data, which may have asked for this call."
    )

    decide(asked.pk, decision="approve", by="ann")
    lab.go_on(run)
    delivered()

    assert [text_of(letter) for letter in server.letters] == ["Four."]


def test_an_erased_run_leaves_neither_the_address_nor_an_answer(lab: Lab, server: MailServer) -> None:
    server.manner = "later"
    run = woken(lab, answering, mail())
    delivered()

    with transaction.atomic():
        erase_runs([run.id])
    server.manner = "take"
    make_due()
    delivered()

    held = str([*Delivery.objects.values(), *Notification.objects.values()])
    assert "ada@example.org" not in held and "example.org" not in held
    assert server.letters == []
