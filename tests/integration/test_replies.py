"""Replies through real processes: a dispatcher that dies over one says none twice, and keeps the order of the thread."""

from collections.abc import Iterator

import pytest
from django.conf import settings

from runs.models import OutboxMessage
from tests.support.chat_servers import taking_slack
from tests.support.post_office import HookServer
from tests.support.replying import bodies, connected_to
from tests.support.stack import Stack, StackMaker, eventually

pytestmark = [pytest.mark.long, pytest.mark.chaos]

LEASE_ENDS = "UPDATE runs_delivery SET due_at = now() WHERE status = 'sending' RETURNING id"
SAID = [f"{number}" for number in range(5)]


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    with taking_slack(monkeypatch) as server:
        yield server


def statuses(stack: Stack) -> list[str]:
    return [row["status"] for row in stack.query("SELECT status FROM runs_delivery ORDER BY id")]


@pytest.mark.parametrize(
    ("point", "unknown", "arrived"),
    [
        ("before_outbox_commit", 0, SAID),
        ("after_outbox_commit", 0, SAID),
        ("after_delivery_claim", 1, SAID[1:]),
        ("after_delivery", 1, SAID),
    ],
)
def test_replies_of_a_dispatcher_that_died(
    make_stack: StackMaker, slack: HookServer, point: str, unknown: int, arrived: list[str]
) -> None:
    keys = ",".join(settings.WAKEFUL_ENCRYPTION_KEYS)
    stack = make_stack(env={"WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8", "WAKEFUL_ENCRYPTION_KEYS": keys})
    host = f"127.0.0.1:{slack.port}"
    to = {"host": host, "api": f"http://{host}/api/", "connection": "bot", "channel": "C1", "thread_ts": "1.1"}
    place = {"kind": "slack-thread", "to": to, "name": "C1", "thread": "slack:C1:1.1", "asks": False}
    with stack.orm():
        connected_to(host)
        for text in SAID:
            OutboxMessage.objects.create(
                topic="reply", payload={"run": None, "sender": "clerk", "text": text, "place": place}
            )

    assert stack.start("dispatcher", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"}).wait() == -9
    if unknown:
        stack.query(LEASE_ENDS)
    stack.start("dispatcher")
    stack.start("dispatcher")

    eventually(lambda: sorted(statuses(stack)) == sorted(["unknown"] * unknown + ["sent"] * (5 - unknown)))
    assert [body["text"] for body in bodies(slack.posted)] == arrived
