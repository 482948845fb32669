"""A run that a message of Slack has woken asks for a decision in its thread, and linked people decide there by buttons."""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models.functions import Now
from pydantic_ai import Agent as LlmAgent

from agents import AgentRun
from agents.tools import toolbox
from runs.actions.approve import decide
from runs.actions.cancel import cancel
from runs.actions.chat_accounts import unlink_account
from runs.actions.fork import fork
from runs.actions.requeue import requeue
from runs.models import Approval, AuditEntry, ChatAccount, ChatLinkCode, Delivery, Notification, Recipient, Run, Wait
from runs.notifications.deliver import Deliverer, claim_next
from runs.notifications.edit import change_recipient
from runs.notifications.recipients import sync_settings
from runs.notifications.resolve import resolve
from runs.retention.erasure import erase_notifications
from tests.support.asking import (
    POSTED,
    TS,
    asking_slack,
    code_of,
    commanded,
    decisions,
    in_slack,
    linked,
    outcome,
    person,
    pressed,
    request,
    signature,
    to_slack,
)
from tests.support.chat_servers import taking_slack
from tests.support.durable import Lab, lab
from tests.support.hooks import add_secret, post
from tests.support.llm import Turns
from tests.support.notifying import delivered, make_due, make_recipient
from tests.support.post_office import HookServer, taking_hooks
from tests.support.replying import bodies, connected_to, slack_message
from tests.support.runs import make_run
from triggers.models import Event, Source
from triggers.sources.webhooks import door
from triggers.sources.webhooks.acts import carry_out

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    with taking_slack(monkeypatch) as server:
        yield server


@pytest.fixture
def source(server: HookServer) -> Source:
    connected_to(f"127.0.0.1:{server.port}")
    return asking_slack(server.port)


@pytest.fixture
def ada(source: Source) -> User:
    user = person()
    linked(source, user)
    return user


def refund(run: AgentRun) -> str:
    answer = run.ask_approval("Refund it?", arguments={"amount": 30}, detail="The customer has written twice.")
    return f"{answer.decision} {answer.arguments}"


def asked(lab: Lab, source: Source, body: Any = refund) -> Run:
    """A run that waits for a decision, whose request is posted."""
    lab.declare(body, "durable")
    event = slack_message(source)
    run = lab.go_on(make_run(event_ids=[event.id], trigger="durable", policy={"retries": 0, "durable": True}))
    assert (run.status, run.error) == ("waiting", "")
    delivered()
    return run


def whispers() -> list[str]:
    found = Notification.objects.filter(deliveries__channel="slack-whisper").order_by("id")
    return list(found.values_list("text", flat=True))


def test_the_request_is_posted_with_buttons_and_says_all_that_is_decided_on(
    lab: Lab, server: HookServer, source: Source
) -> None:
    asked(lab, source)

    [body] = bodies(server.posted)
    assert server.posted[0].path == "/api/chat.postMessage"
    assert (body["channel"], body["thread_ts"]) == ("C1", "1700000000.000100")
    texts = [block["text"]["text"] for block in body["blocks"] if block["type"] == "section"]
    assert texts == ["durable asks for approval", "Refund it?", "The customer has written twice."]
    assert '{\n  "amount": 30\n}' in str(body["blocks"][3]["elements"][0]["elements"][0]["text"])
    [actions] = [block["elements"] for block in body["blocks"] if block["type"] == "actions"]
    assert [(one["text"]["text"], one["action_id"]) for one in actions] == [
        ("Approve", f"wakeful:approve:{request().pk}"),
        ("Deny", f"wakeful:deny:{request().pk}"),
    ]
    page = f"/admin/runs/approval/{Approval.objects.get().pk}/change/"
    assert page in body["blocks"][-1]["elements"][0]["text"]
    assert "/approvals/" not in json.dumps(body)  # the signed link decides without a login
    assert (request().status, request().receipt) == ("sent", {"channel": "C1", "ts": TS})
    assert outcome().status == "held"


@pytest.mark.parametrize("choice", ["approve", "deny"])
def test_a_button_decides_once_and_the_message_is_changed(
    lab: Lab, server: HookServer, source: Source, ada: User, choice: str
) -> None:
    run = asked(lab, source)

    answer = in_slack(pressed(request().pk, choice))
    again = in_slack(pressed(request().pk, choice))
    other = in_slack(pressed(request().pk, "deny" if choice == "approve" else "approve"))

    assert [one.status_code for one in (answer, again, other)] == [200, 200, 200]
    assert answer.content == b""
    run = lab.go_on(run)
    verdict = {"approve": "approved {'amount': 30}", "deny": "denied {'amount': 30}"}[choice]
    assert (run.status, run.result) == ("succeeded", verdict)
    approval = Approval.objects.get()
    assert (approval.decision, approval.decided_by) == (choice, "slack:ada")
    delivered()
    delivered(Deliverer())
    [posted, *rest] = server.posted
    [update] = [one for one in rest if one.path == "/api/chat.update"]
    body = json.loads(update.body)
    assert (body["channel"], body["ts"]) == ("C1", TS)
    assert f"{'Approved' if choice == 'approve' else 'Denied'} by slack:ada, " in json.dumps(body["blocks"])
    assert "wakeful:" not in json.dumps(body)
    assert outcome().status == "sent"
    assert [text.split(",")[0] for text in whispers()] == [
        f"{'Approved' if choice == 'approve' else 'Denied'} by slack:ada"
    ] * 2
    [entry] = AuditEntry.objects.filter(kind="approval")
    assert (entry.by, entry.action, entry.object_id) == ("slack:ada", choice, str(approval.pk))
    assert entry.detail["in"] == "Slack thread in C1, account T1/U1"
    assert not Event.objects.filter(source=source).exclude(type="app_mention").exclude(pk=run.event_ids[0]).exists()


@pytest.mark.parametrize("way", ["admin:bob", "cli:deploy", "token:ci", "link"])
def test_a_decision_elsewhere_changes_the_message_too(
    lab: Lab, server: HookServer, source: Source, ada: User, way: str
) -> None:
    asked(lab, source)

    decide(Approval.objects.get().pk, decision="deny", by=way)
    delivered()
    in_slack(pressed(request().pk))
    delivered()

    updates = [json.loads(one.body) for one in server.posted if one.path == "/api/chat.update"]
    assert len(updates) == 1 and f"Denied by {way}" in updates[0]["text"]
    assert decisions() == ["deny"]
    assert whispers()[0].startswith(f"Denied by {way}")


def test_an_expired_request_is_changed_and_decides_nothing(
    lab: Lab, server: HookServer, source: Source, ada: User
) -> None:
    def soon(run: AgentRun) -> str:
        return run.ask_approval("Refund it?", expires="1h").decision

    run = asked(lab, source, soon)
    assert outcome().due_at is not None
    Wait.objects.update(due_at=Now())
    in_slack(pressed(request().pk))
    make_due()
    delivered()

    assert lab.go_on(run).result == "expired"
    assert decisions() == [""]
    [update] = [json.loads(one.body) for one in server.posted if one.path == "/api/chat.update"]
    assert "It has expired without a decision." in update["text"]
    assert whispers() == ["It has expired without a decision."]


def test_the_message_of_an_expired_request_is_tried_for_a_day_while_slack_is_away(
    lab: Lab, server: HookServer, source: Source
) -> None:
    asked(lab, source, lambda run: run.ask_approval("Refund it?", expires="1h").decision)
    Wait.objects.update(due_at=Now())
    server.says = b'{"ok":false,"error":"internal_error"}'
    make_due()
    delivered()
    assert (outcome().status, outcome().error) == ("pending", "Slack answered internal_error")

    Delivery.objects.filter(pk=outcome().pk, give_up_at__lte=Now() + timedelta(days=1)).update(give_up_at=Now())
    make_due()
    delivered()

    assert outcome().status == "failed"
    assert outcome().error.startswith("Slack answered internal_error; given up")


def test_a_request_of_a_run_that_was_stopped_is_changed_at_the_next_look(
    lab: Lab, server: HookServer, source: Source, ada: User
) -> None:
    run = asked(lab, source)
    cancel(run.pk, by="admin:bob")
    delivered()
    assert outcome().status == "held"

    make_due()
    delivered()

    [update] = [json.loads(one.body) for one in server.posted if one.path == "/api/chat.update"]
    assert "Its run was stopped before a decision." in update["text"]


def test_a_look_at_an_open_request_holds_it_again(lab: Lab, server: HookServer, source: Source) -> None:
    asked(lab, source)
    make_due()

    delivered()

    assert (outcome().status, outcome().attempts, len(server.posted)) == ("held", 0, 1)


def test_without_approvals_no_request_is_posted(lab: Lab, server: HookServer, source: Source) -> None:
    Source.objects.update(settings={**source.settings, "approvals": "no", "reply": "yes"})

    asked(lab, source)

    assert server.posted == []
    assert not Delivery.objects.exclude(place=None).exists()


# Who may


def test_an_account_that_is_linked_to_no_one_decides_nothing_and_learns_how(
    lab: Lab, server: HookServer, source: Source
) -> None:
    asked(lab, source)
    person("U1")  # a user of that name is no proof

    answer = in_slack(pressed(request().pk))
    delivered()

    assert answer.status_code == 200
    assert decisions() == [""]
    [whisper] = [json.loads(one.body) for one in server.posted if one.path == "/api/chat.postEphemeral"]
    assert (whisper["channel"], whisper["user"], whisper["thread_ts"]) == ("C1", "U1", "1700000000.000100")
    assert "/admin/chat-accounts/" in whisper["text"]


@pytest.mark.parametrize(
    "change",
    [
        lambda user: user.user_permissions.clear(),
        lambda user: User.objects.filter(pk=user.pk).update(is_active=False),
        lambda user: User.objects.filter(pk=user.pk).update(is_staff=False),
    ],
)
def test_who_has_lost_the_right_decides_nothing(
    lab: Lab, source: Source, server: HookServer, ada: User, change: Any
) -> None:
    asked(lab, source)
    change(ada)

    in_slack(pressed(request().pk))

    assert decisions() == [""]
    assert whispers() == ["ada may not decide approvals."]


def test_an_unlinked_account_and_a_deleted_user_decide_nothing(lab: Lab, source: Source, ada: User) -> None:
    asked(lab, source)
    unlink_account(ChatAccount.objects.get().pk, by="admin:ada", of=ada)
    in_slack(pressed(request().pk))
    linked(source, ada)
    ada.delete()
    in_slack(pressed(request().pk))

    assert decisions() == [""]
    assert len(whispers()) == 2
    assert AuditEntry.objects.filter(action="unlink", by="admin:ada").count() == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"user": {"id": "U1", "username": "ada", "team_id": "T2"}},  # by Slack Connect
        {"user": {"id": "U2", "username": "ada", "name": "ada", "team_id": "T1"}},
        {"user": {"id": "U1", "username": "ada"}, "team": {"id": "T2"}},
        {"user": {}},
        {"user": {"id": ["U1"], "team_id": "T1"}},
    ],
)
def test_another_person_decides_nothing(lab: Lab, source: Source, ada: User, changed: dict[str, Any]) -> None:
    asked(lab, source)

    assert in_slack(pressed(request().pk, **changed)).status_code == 200

    assert decisions() == [""]


def test_with_another_secret_the_link_has_ended(lab: Lab, source: Source, ada: User) -> None:
    """Who may enter a secret of the source would decide as anyone who is linked there."""
    asked(lab, source)
    add_secret(source, "a-secret-that-mallory-knows")

    in_slack(pressed(request().pk), secret="a-secret-that-mallory-knows")

    assert decisions() == [""]
    assert whispers()[0].startswith("The source has another secret since this account was linked.")
    in_slack(pressed(request().pk))
    assert decisions() == ["approve"]


def test_another_source_cannot_speak_for_this_one(lab: Lab, server: HookServer, source: Source, ada: User) -> None:
    asked(lab, source)
    other = Source.objects.create(slug="mine", kind="slack", settings=source.settings)
    add_secret(other, "known")
    linked(other, ada)  # even if she is linked there as well
    body = b"payload=" + json.dumps(pressed(request().pk)).encode()

    headers = {"Content-Type": "application/x-www-form-urlencoded", **signature(body, "known")}
    answer = post(body, headers, slug="mine")

    assert (answer.status_code, decisions()) == (200, [""])
    assert whispers() == ["This request is unknown here."]


# What counts


@pytest.mark.parametrize("secret", ["wrong", ""])
def test_a_forged_signature_decides_nothing(lab: Lab, source: Source, ada: User, secret: str) -> None:
    asked(lab, source)

    assert in_slack(pressed(request().pk), secret=secret).status_code == 401
    assert decisions() == [""]


def test_a_payload_that_is_replayed_later_decides_nothing(lab: Lab, source: Source, ada: User) -> None:
    asked(lab, source)

    assert in_slack(pressed(request().pk), at=time.time() - 400).status_code == 401
    assert decisions() == [""]


@pytest.mark.parametrize(
    "where",
    [
        {"container": {"message_ts": "1700000000.000999", "channel_id": "C1"}, "message": {"ts": "1700000000.000999"}},
        {"container": {"message_ts": TS, "channel_id": "C2"}, "channel": {"id": "C2"}},
        {"container": {}, "message": {}, "channel": {}},
    ],
)
def test_a_button_of_another_message_decides_nothing(
    lab: Lab, source: Source, ada: User, where: dict[str, Any]
) -> None:
    """An agent that can post blocks could name its button “Show the report”, and have someone approve what it wants."""
    asked(lab, source)

    in_slack(pressed(request().pk, **where))

    assert decisions() == [""]


@pytest.mark.parametrize("name", ["nonsense", "01900000-0000-7000-8000-000000000000", "-" * 40])
def test_a_button_of_no_request_decides_nothing(lab: Lab, source: Source, ada: User, name: str) -> None:
    asked(lab, source)

    assert in_slack(pressed(name)).status_code in (200, 202)

    assert decisions() == [""]
    assert not Event.objects.filter(
        type="block_actions", data__actions__0__action_id__startswith=f"wakeful:approve:{uuid4()}"
    ).exists()


def test_an_unknown_choice_decides_nothing(lab: Lab, source: Source, ada: User) -> None:
    asked(lab, source)

    in_slack(pressed(request().pk, "edit"))
    in_slack(pressed(request().pk, "answer", action={"value": "yes"}))

    assert decisions() == [""]
    assert whispers() == ["This button is unknown here.", "Enter an answer first."]


def test_buttons_of_others_are_events(lab: Lab, source: Source, ada: User) -> None:
    answer = in_slack(pressed("x", action={"action_id": "my-own-button"}))

    assert answer.status_code == 200
    assert Event.objects.filter(source=source, type="block_actions").count() == 1


def test_a_huge_payload_is_refused(lab: Lab, source: Source, ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    asked(lab, source)
    monkeypatch.setattr(settings, "WAKEFUL_MAX_BODY", 10_000)

    assert in_slack(pressed(request().pk, state={"values": "x" * 20_000})).status_code == 413
    assert decisions() == [""]


def test_with_approvals_switched_off_again_nothing_is_decided(lab: Lab, source: Source, ada: User) -> None:
    asked(lab, source)
    Source.objects.update(settings={**source.settings, "approvals": "no"})

    in_slack(pressed(request().pk))

    assert decisions() == [""]
    assert whispers() == ["Approvals are switched off at this source. Decide in the console."]


def test_a_disabled_source_decides_nothing(lab: Lab, source: Source, ada: User) -> None:
    asked(lab, source)
    in_slack(pressed("00000000-0000-0000-0000-000000000000"))  # this process knows the source
    Source.objects.update(enabled=False)

    assert in_slack(pressed(request().pk)).status_code == 404
    assert decisions() == [""]


def test_the_answers_to_an_account_that_presses_often_are_bounded(lab: Lab, source: Source) -> None:
    asked(lab, source)

    for _ in range(25):
        in_slack(pressed(request().pk))

    assert len(whispers()) == 10


# What is shown


def test_what_is_too_long_to_show_is_not_approved_here(lab: Lab, server: HookServer, source: Source) -> None:
    def long(run: AgentRun) -> str:
        return run.ask_approval("Send it?", arguments={"text": "x" * 3_000}).decision

    asked(lab, source, long)

    shown = json.dumps(bodies(server.posted)[0]["blocks"])
    assert "wakeful:approve" not in shown and "wakeful:deny" in shown
    assert "Open it in the console to read all of it and approve it." in shown


def test_characters_that_hide_others_are_written_out(lab: Lab, server: HookServer, source: Source) -> None:
    def hiding(run: AgentRun) -> str:
        return run.ask_approval("Pay <!channel> \u202e03 EUR?\u200b", arguments={"to": "a\u2066b"}).decision

    asked(lab, source, hiding)

    [body] = bodies(server.posted)
    assert body["blocks"][1]["text"] == {
        "type": "plain_text",
        "text": "Pay <!channel> \\u202e03 EUR?\\u200b",
        "emoji": False,
    }
    assert "a\\u2066b" in body["blocks"][2]["elements"][0]["elements"][0]["text"]
    assert "<!channel>" not in body["text"]


def asking(run: AgentRun) -> str:
    turns = Turns([("ask_human", {"question": "Which region?"})], "done")
    run.llm(LlmAgent(turns.model, name="clerk", tools=[toolbox.get("ask_human")]), "Go on.", deps=run)
    return "done"


@pytest.mark.parametrize(
    ("choice", "value", "decision", "words"),
    [
        ("answer", " eu-west ", "edit", "Answered"),
        ("approve", "", "approve", "Approved"),
        ("deny", "", "deny", "Denied"),
    ],
)
def test_a_question_of_a_model_is_answered_in_words_or_by_a_button(
    lab: Lab, server: HookServer, source: Source, ada: User, choice: str, value: str, decision: str, words: str
) -> None:
    run = asked(lab, source, asking)
    blocks = bodies(server.posted)[0]["blocks"]
    [field] = [block["element"] for block in blocks if block["type"] == "input"]
    assert field["action_id"] == f"wakeful:answer:{request().pk}"
    [actions] = [block["elements"] for block in blocks if block["type"] == "actions"]
    assert [one["text"]["text"] for one in actions] == ["Yes", "No"]

    in_slack(pressed(request().pk, choice, action={"type": "plain_text_input", "value": value}))

    approval = Approval.objects.get()
    assert (approval.decision, approval.decided_by) == (decision, "slack:ada")
    if choice == "answer":
        assert approval.decided_arguments == {"question": "Which region?", "answer": "eu-west"}
    delivered()
    [update] = [json.loads(one.body) for one in server.posted if one.path == "/api/chat.update"]
    assert f"{words} by slack:ada" in update["text"] and '"input"' not in json.dumps(update)
    assert lab.go_on(run).status == "succeeded"


# When it goes wrong


def test_a_request_that_cannot_be_posted_harms_nothing(lab: Lab, server: HookServer, source: Source, ada: User) -> None:
    server.says = b'{"ok":false,"error":"not_in_channel"}'
    run = asked(lab, source)
    assert request().status == "failed"

    decide(Approval.objects.get().pk, decision="approve", by="admin:bob")
    delivered()

    assert lab.go_on(run).status == "succeeded"
    assert outcome().status == "suppressed"
    assert len(server.posted) == 1


def test_a_message_that_cannot_be_changed_harms_nothing(
    lab: Lab, server: HookServer, source: Source, ada: User
) -> None:
    run = asked(lab, source)
    server.says = b'{"ok":false,"error":"message_not_found"}'
    before = Notification.objects.count()

    in_slack(pressed(request().pk))
    delivered()

    assert lab.go_on(run).status == "succeeded"
    assert (outcome().status, outcome().error) == ("failed", "Slack answered message_not_found")
    assert Notification.objects.count() == before


def test_a_request_whose_post_has_no_answer_is_unknown_and_its_buttons_do_not_count(
    lab: Lab, server: HookServer, source: Source, ada: User
) -> None:
    server.manner = "cut"
    asked(lab, source)
    assert request().status == "unknown"

    in_slack(pressed(request().pk))

    assert decisions() == [""]
    assert whispers() == ["This is not the message that the request was posted in. Decide in the console."]


def test_a_button_that_is_faster_than_the_record_is_to_be_pressed_again(lab: Lab, source: Source, ada: User) -> None:
    asked(lab, source)
    Delivery.objects.filter(pk=request().pk).update(status="sending", receipt=None, due_at=Now(), sent_at=None)

    in_slack(pressed(request().pk))

    assert decisions() == [""]
    assert "Try again in some seconds." in whispers()[0]


def test_what_is_decided_before_it_is_posted_is_not_posted(lab: Lab, server: HookServer, source: Source) -> None:
    lab.declare(refund, "durable")
    event = slack_message(source)
    lab.go_on(make_run(event_ids=[event.id], trigger="durable", policy={"retries": 0, "durable": True}))
    decide(Approval.objects.get().pk, decision="deny", by="admin:bob")

    delivered()

    assert server.posted == []


def test_a_decision_while_the_outcome_is_looked_at_is_not_missed(
    lab: Lab, server: HookServer, source: Source, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(lab, source)
    make_due()
    from runs.notifications import requests

    held = requests.hold_on

    def meanwhile(delivery: Delivery, claim: Any) -> None:
        decide(Approval.objects.get().pk, decision="deny", by="admin:bob")  # finds no held outcome
        held(delivery, claim)

    monkeypatch.setattr(requests, "hold_on", meanwhile)
    assert claim_next([]) is None
    monkeypatch.setattr(requests, "hold_on", held)
    make_due()
    delivered()

    assert [one.path for one in server.posted] == ["/api/chat.postMessage", "/api/chat.update"]


def test_an_erased_run_leaves_no_way_to_its_message(lab: Lab, server: HookServer, source: Source, ada: User) -> None:
    from django.db import transaction
    from django.db.models import Q

    run = asked(lab, source)
    post_ = request()
    with transaction.atomic():
        erase_notifications(Q(run_id=run.pk), since=run.created_at)

    assert not Delivery.objects.exclude(receipt=None).exists()
    in_slack(pressed(post_.pk))
    assert decisions() == [""]


def test_a_request_in_a_chat_is_no_recipient_who_was_reached(
    lab: Lab, server: HookServer, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What reaches no recipient goes to that of the settings, whatever becomes of the request."""
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_TO", "inbox:lead")
    sync_settings()
    change_recipient(Recipient.objects.get().pk, by="test", gets_all=False)
    with taking_hooks() as refusing:
        refusing.manner = "refuse"
        make_recipient("ops", refusing.url)
        asked(lab, source)

    assert Delivery.objects.get(name="ops").status == "failed"
    assert Delivery.objects.get(channel="inbox", notification__topic__startswith="approval:").status == "sent"


@pytest.mark.parametrize("is_beyond", [False, True])
def test_a_request_that_a_person_sends_again_is_changed_once_it_is_decided(
    lab: Lab, server: HookServer, source: Source, ada: User, monkeypatch: pytest.MonkeyPatch, is_beyond: bool
) -> None:
    monkeypatch.setattr("runs.notifications.requests.MOST", 0 if is_beyond else 200)
    server.says = b'{"ok":false,"error":"not_in_channel"}'
    asked(lab, source)
    assert request().status == "failed"
    make_due()
    delivered()  # the look
    server.says = json.dumps(POSTED).encode()

    resolve(request().pk, outcome="send_again", by="admin:bob")
    delivered()
    in_slack(pressed(request().pk))
    delivered()

    assert decisions() == ["approve"]
    assert [one.path for one in server.posted].count("/api/chat.update") == 1
    assert outcome().status == "sent"


def test_with_the_payload_of_its_run_removed_the_message_is_changed_all_the_same(
    lab: Lab, server: HookServer, source: Source
) -> None:
    run = asked(lab, source)
    cancel(run.pk, by="admin:bob")
    Approval.objects.update(question="", detail="", arguments=None, digest="")  # as of an agent that keeps no content

    make_due()
    delivered()

    [update] = [json.loads(one.body) for one in server.posted if one.path == "/api/chat.update"]
    assert "Its run was stopped before a decision." in update["text"]
    assert "Refund it?" not in json.dumps(update)


def test_what_a_model_wants_to_answer_in_the_thread_is_not_shown_there_before_it_is_approved(
    lab: Lab, server: HookServer, source: Source
) -> None:
    Source.objects.update(settings={**source.settings, "reply": "ask"})

    def answering(run: AgentRun) -> str:
        turns = Turns([("reply", {"text": "what no one here may read"})], "done")
        agent = LlmAgent(turns.model, name="clerk", tools=[toolbox.get("reply")])
        run.llm(agent, "Answer.", deps=run, untrusted="Hi")
        return "done"

    run = asked(lab, source, answering)
    assert server.posted == []
    assert Notification.objects.filter(topic__startswith="approval:").count() == 1

    decide(Approval.objects.get().pk, decision="approve", by="admin:bob")
    assert lab.go_on(run).status == "succeeded"


def test_a_fork_asks_although_its_request_is_sent_before_it_goes_on(
    lab: Lab, server: HookServer, source: Source, ada: User
) -> None:
    """Until then its wait is closed, as that of a run which was stopped."""

    def paying(run: AgentRun) -> str:
        decision = run.ask_approval("Refund it?").decision
        return str(run.step("pay", lambda: decision))

    make_recipient("ops")
    run = asked(lab, source, paying)
    in_slack(pressed(request().pk))
    assert lab.go_on(run).status == "succeeded"
    delivered()
    Delivery.objects.all().delete()

    new = fork(run.pk, step="pay", by="admin:bob")
    delivered()
    new = lab.go_on(new)

    assert new.status == "waiting"
    assert Delivery.objects.get(name="ops").status == "sent"
    assert request().status == "sent"
    in_slack(pressed(request().pk))
    assert lab.go_on(new).status == "succeeded"


def test_a_request_of_a_run_that_is_to_go_on_after_the_deadline_is_looked_at_now_and_then(
    lab: Lab, server: HookServer, source: Source
) -> None:
    run = asked(lab, source)
    cancel(run.pk, by="admin:bob")
    requeue(run.pk, by="admin:bob")
    Wait.objects.update(due_at=Now())
    make_due()

    assert claim_next([]) is None

    assert outcome().due_at > Approval.objects.get().wait.due_at  # type: ignore[operator]
    assert outcome().status == "held"


# Linking


def test_a_code_links_the_account_that_sends_it_once(lab: Lab, source: Source) -> None:
    ada = person()
    code = code_of(ada, source)

    first = commanded(f"link {code}")
    again = commanded(f"link {code}", user_id="U2")

    assert json.loads(first.content) == {
        "response_type": "ephemeral",
        "text": "Linked: this account now decides approvals as ada.",
    }
    assert "was used" in json.loads(again.content)["text"]
    account = ChatAccount.objects.get()
    assert (account.user, account.workspace, account.account, account.source_id) == (ada, "T1", "U1", source.pk)
    assert AuditEntry.objects.filter(action="link", by="slack:ada", kind="chataccount").count() == 1
    assert not Event.objects.filter(source=source).exists()  # so the code stands in no event
    assert code not in str(list(AuditEntry.objects.values_list("detail", flat=True)))
    asked(lab, source)
    in_slack(pressed(request().pk))
    assert decisions() == ["approve"]


def test_a_code_ends(source: Source) -> None:
    code = code_of(person(), source)
    ChatLinkCode.objects.update(expires_at=Now())

    commanded(f"link {code}")

    assert not ChatAccount.objects.exists()


def test_a_code_is_of_its_source_and_a_newer_one_ends_it(server: HookServer, source: Source) -> None:
    ada = person()
    other = Source.objects.create(slug="other", kind="slack", settings={})
    old = code_of(ada, source)
    elsewhere = code_of(ada, other)

    commanded(f"link {old}")
    commanded(f"link {elsewhere}")

    assert not ChatAccount.objects.exists()


def test_a_code_that_others_may_have_read_is_revoked(source: Source) -> None:
    code = code_of(person(), source)
    event = {"type": "app_mention", "user": "U1", "channel": "C1", "ts": "1.1", "text": f"<@U0BOT> link {code}"}
    body = json.dumps({"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}).encode()

    answer = post(body, {"Content-Type": "application/json", **signature(body)}, slug="slack")
    commanded(f"link {code}", user_id="U666")

    assert answer.status_code == 200
    assert not ChatAccount.objects.exists()
    assert not Event.objects.filter(source=source).exists()


def test_a_code_that_others_may_have_read_at_another_source_is_revoked(server: HookServer, source: Source) -> None:
    other = Source.objects.create(slug="other", kind="slack", settings={})
    code = code_of(person(), other)
    event = {"type": "app_mention", "user": "U1", "channel": "C1", "ts": "1.1", "text": f"<@U0BOT> link {code}"}
    body = json.dumps({"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": event}).encode()

    post(body, {"Content-Type": "application/json", **signature(body)}, slug="slack")

    assert not ChatLinkCode.objects.exists(), "who has read it could link an account at its own source"


@pytest.mark.parametrize("where", ["message", "previous_message"])
def test_a_code_in_an_edited_message_is_revoked(source: Source, where: str) -> None:
    code = code_of(person(), source)
    edit = {"type": "message", "subtype": "message_changed", "channel": "C1", where: {"text": f"link {code}"}}
    body = json.dumps({"type": "event_callback", "team_id": "T1", "event_id": "Ev1", "event": edit}).encode()

    post(body, {"Content-Type": "application/json", **signature(body)}, slug="slack")
    commanded(f"link {code}", user_id="U666")

    assert not ChatAccount.objects.exists()
    assert not Event.objects.filter(source=source).exists()


def test_a_source_that_is_edited_right_after_an_act_does_not_have_it_repeated(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = person()
    commanded("link nothing")  # this process knows the source

    def edited_then(*args: Any) -> Any:
        answer = carry_out(*args)
        Source.objects.update(limits={"per_minute": 1_000})
        return answer

    monkeypatch.setattr(door, "carry_out", edited_then)
    answer = commanded(f"link {code_of(ada, source)}")

    assert json.loads(answer.content)["text"].startswith("Linked:")


def test_a_user_without_the_right_gets_no_code_and_no_link(source: Source) -> None:
    ada = person()
    code = code_of(ada, source)
    ada.user_permissions.clear()

    answer = commanded(f"link {code}")

    assert json.loads(answer.content)["text"] == "ada may not decide approvals."
    assert not ChatAccount.objects.exists()


def test_an_account_is_of_one_person(source: Source) -> None:
    ada, bob = person(), person("bob")
    linked(source, ada)

    answer = commanded(f"link {code_of(bob, source)}")

    assert "linked to another person" in json.loads(answer.content)["text"]
    assert ChatAccount.objects.get().user == ada


def test_after_another_secret_people_link_again(source: Source) -> None:
    ada, bob = person(), person("bob")
    linked(source, ada)
    add_secret(source, "a-new-secret-of-the-app")

    to_slack(
        {"team_id": "T1", "user_id": "U1", "command": "/wakeful", "text": f"link {code_of(bob, source)}"},
        secret="a-new-secret-of-the-app",
    )

    assert ChatAccount.objects.get().user == bob


def test_a_forged_command_links_no_one(source: Source) -> None:
    code = code_of(person(), source)

    answer = to_slack({"team_id": "T1", "user_id": "U1", "command": "/w", "text": f"link {code}"}, secret="forged")

    assert (answer.status_code, ChatAccount.objects.count()) == (401, 0)


def test_other_commands_are_events(source: Source) -> None:
    commanded("status of order 7")

    assert Event.objects.get(source=source).type == "slash_command"
