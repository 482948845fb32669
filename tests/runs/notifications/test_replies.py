"""A run answers the message that woke it, in its thread, once, by the account that the operator has named."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.conf import settings
from django.db import connection
from pydantic_ai import Agent as LlmAgent

from agents import AgentRun
from agents.models import Session
from agents.tools import toolbox
from runs.actions.approve import decide
from runs.actions.requeue import requeue
from runs.models import Approval, Delivery, Notification, OutboxMessage, Run
from runs.network.signing import key_of, new_secret, signature
from runs.notifications.deliver import Deliverer, claim_next
from runs.notifications.resolve import resolve
from tests.support.chat_servers import taking_slack
from tests.support.durable import Lab, lab
from tests.support.llm import Turns
from tests.support.notifying import delivered, make_due, make_recipient, notify
from tests.support.post_office import HookServer, taking_hooks
from tests.support.replying import TOKEN, bodies, connected_to, slack_message, slack_source
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Event, Source
from triggers.sources.secrets import add_secret

__all__ = ["lab"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    with taking_slack(monkeypatch) as server:
        yield server


@pytest.fixture
def slack(server: HookServer) -> Source:
    connected_to(f"127.0.0.1:{server.port}")
    return slack_source(server.port)


def woken(lab: Lab, body: Callable[[AgentRun], Any], *events: Event, durable: bool = True) -> Run:
    lab.declare(body, "durable", durable=durable)
    policy = {"retries": 0, "durable": durable}
    return lab.go_on(make_run(event_ids=[event.id for event in events], trigger="durable", policy=policy))


def answering(run: AgentRun) -> None:
    run.reply("Four.")


@pytest.mark.parametrize("durable", [True, False])
def test_a_message_of_slack_is_answered_once_in_its_thread(
    lab: Lab, server: HookServer, slack: Source, durable: bool
) -> None:
    run = woken(lab, answering, slack_message(slack), durable=durable)

    delivered()
    delivered(Deliverer())

    assert (run.status, run.error) == ("succeeded", "")
    [posted] = server.posted
    assert (posted.path, posted.headers["authorization"]) == ("/api/chat.postMessage", f"Bearer {TOKEN}")
    [body] = bodies(server.posted)
    assert (body["channel"], body["thread_ts"], body["text"]) == ("C1", "1700000000.000100", "Four.")
    delivery = Delivery.objects.get()
    assert (delivery.status, delivery.name, delivery.recipient) == ("sent", "Slack thread in C1", None)
    assert Notification.objects.get().run_id == run.id
    assert TOKEN not in str(delivery.place)


def test_a_message_within_a_thread_is_answered_there(lab: Lab, server: HookServer, slack: Source) -> None:
    woken(lab, answering, slack_message(slack, ts="1700000009.000900", thread_ts="1700000000.000100"))

    delivered()

    assert bodies(server.posted)[0]["thread_ts"] == "1700000000.000100"


def test_replies_of_a_thread_are_sent_in_their_order(lab: Lab, server: HookServer, slack: Source) -> None:
    def counting(run: AgentRun) -> None:
        for number in range(5):
            run.reply(f"{number}")

    woken(lab, counting, slack_message(slack))
    assert OutboxMessage.objects.filter(topic="reply").count() == 0

    first = claim_next([])
    assert first and first.message.items[0].text == "0"
    assert claim_next([]) is None  # the second waits for the first
    Delivery.objects.filter(pk=first.id).update(status="pending")
    make_due()
    delivered()

    assert [body["text"] for body in bodies(server.posted)] == ["0", "1", "2", "3", "4"]


def test_a_thread_that_waits_holds_up_no_other_message(lab: Lab, server: HookServer, slack: Source) -> None:
    server.manner = "later"
    woken(lab, answering, slack_message(slack))
    delivered()
    assert Delivery.objects.get().status == "pending"
    make_recipient("hook", f"http://127.0.0.1:{server.port}/other")
    with taking_hooks() as other:
        make_recipient("other", f"http://127.0.0.1:{other.port}/hook", gets_all=False)
        notify(to=["other"])

        delivered()

    assert len(other.posted) == 1
    server.manner = "take"
    make_due()
    delivered()
    assert Delivery.objects.get(channel="slack-thread").status == "sent"


def test_a_reply_that_was_handed_over_without_an_answer_is_unknown_and_sent_again_by_a_person_alone(
    lab: Lab, server: HookServer, slack: Source
) -> None:
    server.manner = "cut"
    woken(lab, answering, slack_message(slack))

    delivered()
    make_due()
    delivered(Deliverer())
    assert (Delivery.objects.get().status, len(server.posted)) == ("unknown", 1)

    server.manner = "take"
    resolve(Delivery.objects.get().pk, outcome="send_again", by="ada")
    delivered()
    assert (Delivery.objects.get().status, len(server.posted)) == ("sent", 2)


def test_what_slack_refuses_has_failed_and_people_get_to_know_it(lab: Lab, server: HookServer, slack: Source) -> None:
    server.says = b'{"ok":false,"error":"not_in_channel"}'
    woken(lab, answering, slack_message(slack))

    delivered()

    assert Delivery.objects.get(channel="slack-thread").error == "Slack answered not_in_channel"
    report = Notification.objects.exclude(topic="").get()
    assert report.text == "A reply of durable could not be sent (Slack thread in C1): Slack answered not_in_channel"


def test_a_token_goes_to_the_hosts_of_its_connection_alone(lab: Lab, server: HookServer) -> None:
    connected_to("slack.example.com")
    woken(lab, answering, slack_message(slack_source(server.port)))

    delivered()

    assert server.posted == []
    assert Delivery.objects.get(channel="slack-thread").error.startswith(
        "connection bot sends its token to slack.example"
    )


def test_a_run_that_fails_answers_nothing_and_a_requeued_one_answers_once(
    lab: Lab, server: HookServer, slack: Source
) -> None:
    def failing(run: AgentRun) -> None:
        run.reply("Four.")
        if run.attempt < 3 and not Notification.objects.filter(text="go").exists():
            raise ValueError("not yet")

    run = woken(lab, failing, slack_message(slack), durable=False)
    delivered()
    assert (run.status, server.posted) == ("failed", [])

    notify("go")
    requeue(run.id, by="ada")
    lab.go_on(run)
    delivered()

    assert [body["text"] for body in bodies(server.posted)] == ["Four."]


def test_a_replay_of_a_durable_run_does_not_answer_again(lab: Lab, server: HookServer, slack: Source) -> None:
    def twice(run: AgentRun) -> None:
        run.reply("One moment.")
        run.sleep("1h")
        run.reply("Four.")

    run = woken(lab, twice, slack_message(slack))
    lab.crash(run)
    lab.later(run)
    delivered()

    assert [body["text"] for body in bodies(server.posted)] == ["One moment.", "Four."]


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"bot_id": "B1"}, "a bot wrote this message"),
        ({"channel": "https://evil.example.com/"}, "belongs to no channel of Slack"),
        ({"ts": "../chat.delete"}, "belongs to no channel of Slack"),
    ],
)
def test_what_has_no_place_to_answer_fails_with_the_way_out(
    lab: Lab, server: HookServer, slack: Source, event: dict[str, Any], why: str
) -> None:
    run = woken(lab, answering, slack_message(slack, **event))

    assert run.status == "failed"
    assert why in run.error


def test_events_of_other_sources_have_no_place_to_answer(lab: Lab) -> None:
    run = woken(lab, answering, make_event(data={"event": {"channel": "C1", "ts": "1.1"}}))

    assert "events of 'cli' (kind cli) have no place to answer. Reach people by run.notify(…)" in run.error


def test_a_source_that_may_not_be_answered_names_its_setting(lab: Lab, server: HookServer) -> None:
    source = Source.objects.create(slug="slack", kind="slack")
    run = woken(lab, answering, slack_message(source))

    assert "its setting “Reply” is “no”" in run.error


def test_an_issue_of_github_gets_a_comment(lab: Lab, server: HookServer) -> None:
    host = f"127.0.0.1:{server.port}"
    connected_to(host)
    chosen = {"reply": "yes", "reply_connection": "bot", "reply_api": f"http://{host}/"}
    source = Source.objects.create(slug="hub", kind="github", settings=chosen)
    data = {
        "action": "opened",
        "issue": {"number": 7, "comments_url": "https://evil.example.com/"},
        "repository": {"full_name": "ada/engine"},
        "sender": {"login": "ada", "type": "User"},
    }
    woken(lab, answering, make_event(source_id=source.pk, data=data))

    delivered()

    [posted] = server.posted
    assert posted.path == "/repos/ada/engine/issues/7/comments"
    assert bodies(server.posted)[0]["body"].startswith("Four.\n")


def test_a_run_without_a_reply_has_no_statement_for_one(lab: Lab, slack: Source) -> None:
    seen: list[str] = []

    def watch(execute: Any, sql: str, *rest: Any) -> Any:
        seen.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(watch):
        woken(lab, lambda run: None, slack_message(slack))

    assert not any("payload_removed_at" in sql and "triggers_source" in sql for sql in seen)


def test_a_reply_whose_sender_dies_over_it_is_unknown(lab: Lab, server: HookServer, slack: Source) -> None:
    woken(lab, answering, slack_message(slack))
    assert claim_next([])

    make_due()
    delivered()

    delivery = Delivery.objects.get()
    assert (delivery.status, server.posted) == ("unknown", [])
    assert delivery.reason.startswith("it may have arrived")


def test_the_thread_is_a_session_that_the_next_message_goes_on_with(
    lab: Lab, server: HookServer, slack: Source
) -> None:
    turns = Turns("Four.", "Five.")  # the second, where the first is in the history

    def talking(run: AgentRun) -> None:
        run.reply(run.llm(LlmAgent(turns.model, name="clerk"), "Answer.", session=run.thread).output)

    woken(lab, talking, slack_message(slack))
    woken(lab, talking, slack_message(slack, ts="1700000009.000900", thread_ts="1700000000.000100"))
    woken(lab, talking, slack_message(slack, ts="1700000010.000100"))
    delivered()

    said = [(body["thread_ts"], body["text"]) for body in bodies(server.posted)]
    assert [text for thread, text in said if thread == "1700000000.000100"] == ["Four.", "Five."]
    assert [text for thread, text in said if thread == "1700000010.000100"] == ["Four."]
    counted = dict(Session.objects.values_list("name", "last_number"))
    assert counted == {"slack:C1:1700000000.000100": 2, "slack:C1:1700000010.000100": 1}


def test_a_model_answers_strangers_after_a_person_has_approved_it(lab: Lab, server: HookServer) -> None:
    connected_to(f"127.0.0.1:{server.port}")
    turns = Turns([("reply", {"text": "Four."})], "done")

    def talking(run: AgentRun) -> None:
        run.llm(LlmAgent(turns.model, name="clerk", tools=[toolbox.get("reply")]), "Answer.", deps=run)

    run = woken(lab, talking, slack_message(slack_source(server.port, reply="ask")))
    assert (run.status, server.posted) == ("waiting", [])

    decide(Approval.objects.get().pk, decision="approve", by="ann")
    run = lab.go_on(run)
    delivered()

    assert run.status == "succeeded"
    assert [body["text"] for body in bodies(server.posted)] == ["Four."]


@pytest.mark.parametrize(
    ("kind", "secret"),
    [("standard_webhooks", new_secret()), ("hmac", "a secret of the sender")],
    ids=["standard_webhooks", "hmac"],  # each worker of the tests has a secret of its own
)
def test_a_webhook_is_answered_at_the_address_of_its_source_and_signed_by_its_secret(
    lab: Lab, server: HookServer, monkeypatch: pytest.MonkeyPatch, kind: str, secret: str
) -> None:
    monkeypatch.setattr(settings, "WAKEFUL_NOTIFY_NETWORKS", ["127.0.0.0/8"])
    source = Source.objects.create(slug="shop", kind=kind, settings={"reply_url": server.url})
    add_secret(source, secret, by="test")
    event = make_event(source_id=source.pk, data={"reply_url": "https://evil.example.com/", "response_url": "x"})
    server.manner = "cut"
    woken(lab, answering, event)
    delivered()
    server.manner = "take"
    make_due()

    delivered()

    assert Delivery.objects.get().status == "sent"
    assert len(set(server.ids)) == 1  # the receiver recognizes the second one
    posted = server.posted[-1]
    key = key_of(secret) if kind == "standard_webhooks" else secret.encode()
    signed = signature(key, posted.headers["webhook-id"], int(posted.headers["webhook-timestamp"]), posted.body)
    assert posted.headers["webhook-signature"] == signed
    assert bodies([posted])[0]["data"] == {"event": str(event.pk), "event_id": event.ce_id, "text": "Four."}


def test_a_webhook_without_such_an_address_names_the_setting(lab: Lab) -> None:
    source = Source.objects.create(slug="shop", kind="hmac")
    run = woken(lab, answering, make_event(source_id=source.pk, data={"reply_url": "https://evil.example.com/"}))

    assert "“Address for replies” is empty" in run.error
