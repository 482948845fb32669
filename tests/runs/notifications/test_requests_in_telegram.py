"""A run that a message of Telegram has woken asks for a decision in its chat, and linked people decide there by buttons."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from agents import AgentRun
from runs.actions.approve import decide
from runs.models import Approval, ChatAccount, Delivery, Recipient, Run
from runs.notifications.channels.channel import Sent
from tests.support.asking import (
    asking_telegram,
    code_of,
    decisions,
    in_telegram,
    linked,
    outcome,
    person,
    request,
    tapped,
    written,
)
from tests.support.chat_servers import BOT, taking_telegram
from tests.support.durable import Lab, lab
from tests.support.notifying import delivered
from tests.support.post_office import HookServer
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Event, Source

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    with taking_telegram(monkeypatch) as server:
        yield server


@pytest.fixture
def source(server: HookServer) -> Source:
    Recipient.objects.create(name="bot", address=f"tgram://{BOT}/1", channel="apprise", host="telegram", gets_all=False)
    return asking_telegram()


@pytest.fixture
def ada(source: Source) -> User:
    user = person()
    linked(source, user, account="11", workspace="")
    return user


def refund(run: AgentRun) -> str:
    return run.ask_approval("Refund it?", arguments={"amount": 30}).decision


def asked(lab: Lab, source: Source) -> Run:
    lab.declare(refund, "durable")
    message = {"message_id": 7, "from": {"id": 11, "is_bot": False}, "chat": {"id": -100123}, "text": "Refund me"}
    event = make_event(source_id=source.pk, data={"update_id": 1, "message": message})
    run = lab.go_on(make_run(event_ids=[event.id], trigger="durable", policy={"retries": 0, "durable": True}))
    assert run.status == "waiting", run.error
    delivered()
    return run


def test_a_tap_decides_once_and_the_message_is_changed(lab: Lab, server: HookServer, source: Source, ada: User) -> None:
    run = asked(lab, source)
    [posted] = server.posted
    body = json.loads(posted.body)
    assert posted.path == f"/bot{BOT}/sendMessage"
    assert (body["chat_id"], body["reply_parameters"]["message_id"]) == (-100123, 7)
    assert body["text"].startswith('durable asks for approval\n\nRefund it?\n\n{\n  "amount": 30\n}')
    [buttons] = body["reply_markup"]["inline_keyboard"]
    assert [one["text"] for one in buttons] == ["Approve", "Deny"]
    assert all(len(one["callback_data"].encode()) <= 64 for one in buttons)

    first, second = in_telegram(tapped(request())), in_telegram(tapped(request(), "deny"))

    assert json.loads(first.content) == {
        "method": "answerCallbackQuery",
        "callback_query_id": "4382bfdwdsb323b2d9",
        "text": "Approved.",
        "show_alert": False,
    }
    shown = json.loads(second.content)
    assert shown["text"].startswith("Approved by telegram:ada, ") and shown["show_alert"]
    assert lab.go_on(run).result == "approved"
    delivered()
    [_, edited] = server.posted
    assert edited.path == f"/bot{BOT}/editMessageText"
    body = json.loads(edited.body)
    assert (body["chat_id"], body["message_id"]) == (-100123, 8)
    assert "Approved by telegram:ada, " in body["text"] and "reply_markup" not in body
    assert Approval.objects.get().decided_by == "telegram:ada"
    assert not Event.objects.filter(source=source, type="callback_query").exists()


def test_a_change_that_was_made_already_counts_as_made(lab: Lab, server: HookServer, source: Source) -> None:
    asked(lab, source)
    decide(Approval.objects.get().pk, decision="deny", by="admin:bob")
    server.says = b'{"ok":false,"error_code":400,"description":"Bad Request: message is not modified"}'
    server.statuses["take"] = 400

    delivered()

    assert outcome().status == "sent"


@pytest.mark.parametrize(
    "changed",
    [
        {"from": {"id": 12, "is_bot": False, "first_name": "Ada", "username": "ada"}},
        {"from": {}},
        {"message": {"message_id": 9, "chat": {"id": -100123}}},
        {"message": {"message_id": 8, "chat": {"id": -1}}},
        {"message": {}},
        {"inline_message_id": "x", "message": None},
    ],
)
def test_another_person_and_another_message_decide_nothing(
    lab: Lab, source: Source, ada: User, changed: dict[str, Any]
) -> None:
    asked(lab, source)

    answer = in_telegram(tapped(request(), **changed))

    assert (answer.status_code, decisions()) == (200, [""])
    assert json.loads(answer.content)["show_alert"]


def test_without_the_token_nothing_is_decided_and_no_one_linked(lab: Lab, source: Source, ada: User) -> None:
    asked(lab, source)

    assert in_telegram(tapped(request()), token="wrong").status_code == 401
    assert in_telegram(written(f"link {code_of(ada, source)}"), token="wrong").status_code == 401

    assert decisions() == [""]


def test_a_code_links_in_the_bots_own_chat_alone(source: Source) -> None:
    ada = person()
    in_the_open = code_of(ada, source)
    group = in_telegram(written(f"link {in_the_open}", id=-100123, type="supergroup"))
    in_telegram(written(f"link {in_the_open}"))
    assert json.loads(group.content)["text"].startswith("Others may have read this code")
    assert not ChatAccount.objects.exists()

    answer = in_telegram(written(f"/start {code_of(ada, source)}"))

    assert json.loads(answer.content) == {
        "method": "sendMessage",
        "chat_id": "11",
        "text": "Linked: this account now decides approvals as ada.",
    }
    linked_ = ChatAccount.objects.get()
    assert (linked_.account, linked_.workspace, linked_.user) == ("11", "", ada)
    assert not Event.objects.filter(source=source).exists()


def test_a_code_below_a_picture_in_a_group_is_revoked(source: Source) -> None:
    code = code_of(person(), source)
    update = written("", id=-100123, type="supergroup")
    update["message"]["caption"] = f"link {code}"

    in_telegram(update)
    in_telegram(written(f"link {code}"))

    assert not ChatAccount.objects.exists()
    assert not Event.objects.filter(source=source).exists()


def test_the_receipt_is_what_telegram_has_said(lab: Lab, server: HookServer, source: Source) -> None:
    asked(lab, source)

    assert request().receipt == {"chat": -100123, "message": 8}
    assert Sent() == Sent(receipt=None)


def test_an_answer_without_a_number_leaves_no_button_that_counts(
    lab: Lab, server: HookServer, source: Source, ada: User
) -> None:
    server.says = b"<html>"
    asked(lab, source)

    in_telegram(tapped(request()))

    assert (Delivery.objects.get(channel="telegram-request").status, decisions()) == ("sent", [""])
