"""Replies where the provider misbehaves, or where a conversation would not end."""

from typing import Any

import pytest
from django.db.models.functions import Now

from agents import AgentRun
from runs.models import Delivery, Notification, OutboxMessage
from runs.models.delivery import new_id
from runs.notifications import replies
from runs.notifications.deliver import Deliverer
from runs.notifications.resolve import resolve
from runs.retention.erasure import emitting
from tests.runs.notifications.test_replies import answering, server, slack, woken
from tests.support.durable import Lab, lab
from tests.support.notifying import delivered
from tests.support.post_office import HookServer
from tests.support.replying import bodies, connected_to, slack_message
from tests.support.triggers import make_event
from triggers.models import Source

__all__ = ["lab", "server", "slack"]

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("says", "status"),
    [(b"", "unknown"), (b"[]", "unknown"), (b'{"ok": true, "text": "' + b"." * 9000 + b'"}', "sent")],
)
def test_what_slack_took_and_has_not_confirmed_is_unknown(
    lab: Lab, server: HookServer, slack: Source, says: bytes, status: str
) -> None:
    server.says = says
    woken(lab, answering, slack_message(slack))

    delivered()

    assert Delivery.objects.get(channel="slack-thread").status == status


@pytest.mark.parametrize("manner", ["greylist", "take"])
def test_a_pause_that_slack_asks_for_holds_up_one_thread(
    lab: Lab, server: HookServer, slack: Source, manner: Any
) -> None:
    server.manner, server.says = manner, b'{"ok":false,"error":"ratelimited"}'
    deliverer = Deliverer()
    woken(lab, answering, slack_message(slack))
    delivered(deliverer)
    server.manner, server.says = "take", b'{"ok":true}'

    woken(lab, answering, slack_message(slack, channel="C2", ts="1.1"))
    delivered(deliverer)

    assert dict(Delivery.objects.values_list("thread", "status")) == {
        "slack:C1:1700000000.000100": "pending",
        "slack:C2:1.1": "sent",
    }


def test_a_comment_beyond_a_limit_of_github_is_sent_again(lab: Lab, server: HookServer) -> None:
    server.statuses["refuse"] = 403
    server.manner, server.says = "refuse", b'{"message":"You have exceeded a secondary rate limit."}'
    host = f"127.0.0.1:{server.port}"
    connected_to(host)
    chosen = {"reply": "yes", "reply_connection": "bot", "reply_api": f"http://{host}/"}
    source = Source.objects.create(slug="hub", kind="github", settings=chosen)
    data = {"issue": {"number": 7}, "repository": {"full_name": "ada/engine"}}
    woken(lab, answering, make_event(source_id=source.pk, data=data))

    delivered()

    assert Delivery.objects.get().status == "pending"


def test_a_reply_that_waits_behind_a_host_that_is_away_fails_in_the_end(
    lab: Lab, server: HookServer, slack: Source
) -> None:
    server.close()
    deliverer = Deliverer()
    for channel in ("C1", "C2"):
        woken(lab, answering, slack_message(slack, channel=channel))
        delivered(deliverer)

    Delivery.objects.update(give_up_at=Now(), due_at=Now())
    delivered(deliverer)

    assert list(Delivery.objects.filter(channel="slack-thread").values_list("status", flat=True)) == ["failed"] * 2


def test_replies_of_a_thread_are_bounded_and_people_get_to_know_it(
    lab: Lab, server: HookServer, slack: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replies, "MOST", 3)

    def twice(run: AgentRun) -> None:
        run.reply("Four.")
        run.reply("Five.")

    for _ in range(3):  # as a bot that answers the answer wakes it
        woken(lab, twice, slack_message(slack))
    delivered()

    assert len(server.posted) == 3
    assert Delivery.objects.filter(status="failed", channel="slack-thread").count() == 3
    assert "two may be answering each other" in Notification.objects.exclude(topic="")[0].text
    resolve(Delivery.objects.filter(status="failed", channel="slack-thread")[0].pk, outcome="send_again", by="ada")
    delivered()
    assert len(server.posted) == 4


@pytest.mark.parametrize(
    "event",
    [
        {"subtype": "message_changed", "message": {"bot_id": "B1", "ts": "1.1"}},
        {"subtype": "message_deleted", "previous_message": {"bot_id": "B1", "ts": "1.1"}},
        {"message": {"user": "U1", "ts": "1.1", "reply_count": 1}},  # as Slack sends message_replied
    ],
)
def test_what_becomes_of_the_message_of_a_bot_is_not_answered(
    lab: Lab, server: HookServer, slack: Source, event: dict[str, Any]
) -> None:
    run = woken(lab, answering, slack_message(slack, type="message", **event))

    assert (run.status, "NoReplyPlace" in run.error) == ("failed", True)


def test_a_message_that_a_person_changes_is_answered_in_its_thread(lab: Lab, server: HookServer, slack: Source) -> None:
    changed: dict[str, Any] = {"subtype": "message_changed", "message": {"user": "U1", "ts": "1.1"}, "ts": "2.2"}
    woken(lab, answering, slack_message(slack, type="message", **changed))

    delivered()

    assert bodies(server.posted)[0]["thread_ts"] == "1.1"


def test_an_event_is_not_erased_before_its_reply_is_entered(lab: Lab, slack: Source) -> None:
    run = woken(lab, answering, slack_message(slack))
    OutboxMessage.objects.create(topic="reply", key=str(run.id), payload={"run": str(run.id)})

    assert emitting([run.id]) == {run.id}


def test_an_async_agent_answers_in_the_session_of_the_thread(lab: Lab, server: HookServer, slack: Source) -> None:
    async def talking(run: Any) -> None:
        await run.reply(f"Four, in {await run.thread}.")

    woken(lab, talking, slack_message(slack))
    delivered()

    assert bodies(server.posted)[0]["text"] == "Four, in slack:C1:1700000000.000100."


def test_replies_of_a_thread_keep_their_order_where_the_clocks_of_two_dispatchers_are_apart(
    lab: Lab, server: HookServer, slack: Source
) -> None:
    def twice(run: AgentRun) -> None:
        run.reply("One moment.")
        run.reply("Four.")

    woken(lab, twice, slack_message(slack))
    first = Delivery.objects.order_by("notification_id")[0]
    Delivery.objects.filter(pk=first.pk).update(id=new_id())  # of a host whose clock is ahead

    delivered()

    assert [body["text"] for body in bodies(server.posted)] == ["One moment.", "Four."]
