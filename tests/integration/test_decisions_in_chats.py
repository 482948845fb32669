"""Decisions by buttons through real processes: of several presses at once, and whichever process is killed, one counts."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from urllib.parse import urlencode

import pytest
from django.conf import settings

from runs.actions.approve import decide
from runs.exceptions import IllegalState
from tests.support.asking import FORM, asking_slack, linked, person, pressed, signature
from tests.support.chat_servers import taking_slack
from tests.support.post_office import HookServer
from tests.support.replying import connected_to
from tests.support.stack import Answer, Stack, StackMaker, eventually

pytestmark = [pytest.mark.long, pytest.mark.chaos]

PEOPLE = 6


@pytest.fixture
def slack(monkeypatch: pytest.MonkeyPatch) -> Iterator[HookServer]:
    with taking_slack(monkeypatch) as server:
        yield server


@pytest.fixture
def stack(make_stack: StackMaker, slack: HookServer) -> Stack:
    keys = ",".join(settings.WAKEFUL_ENCRYPTION_KEYS)
    env = {
        "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8",
        "WAKEFUL_ENCRYPTION_KEYS": keys,
        "WAKEFUL_APPS": "tests.userapps.butler",
    }
    stack = make_stack(env=env)
    with stack.orm():
        connected_to(f"127.0.0.1:{slack.port}")
        source = asking_slack(slack.port)
        for number in range(PEOPLE):
            linked(source, person(f"person-{number}"), account=f"U{number}")
    stack.manage("sync_agents")
    return stack


def mention(stack: Stack, text: str = "Refund me") -> None:
    event = {"type": "app_mention", "user": "U1", "channel": "C1", "ts": "1700000000.000100", "text": text}
    body = json.dumps({"type": "event_callback", "team_id": "T1", "event_id": f"Ev-{text}", "event": event}).encode()
    headers = {"Content-Type": "application/json", **signature(body)}
    assert stack.request("POST", "/hooks/slack/", body=body, headers=headers).status == 200


def press(stack: Stack, payload: dict[str, Any]) -> Answer:
    body = urlencode({"payload": json.dumps(payload)}).encode()
    return stack.request("POST", "/hooks/slack/", body=body, headers={"Content-Type": FORM, **signature(body)})


def posted(stack: Stack) -> str:
    """The id of the delivery whose message has the buttons, once it is recorded."""
    rows = "SELECT id FROM runs_delivery WHERE channel = 'slack-request' AND receipt IS NOT NULL"
    return str(eventually(lambda: stack.query(rows))[0]["id"])


def by(number: int) -> dict[str, Any]:
    return {"id": f"U{number}", "username": "x", "team_id": "T1"}


def runs(stack: Stack) -> list[dict[str, Any]]:
    return stack.query("SELECT status, result FROM runs_run")


def paths(slack: HookServer) -> list[str]:
    return [one.path.rpartition("/")[2] for one in slack.posted]


def test_of_several_presses_and_a_console_at_once_one_counts(stack: Stack, slack: HookServer) -> None:
    stack.up(beat=False)
    mention(stack)
    delivery = posted(stack)
    approval = stack.query("SELECT id FROM runs_approval")[0]["id"]

    def in_the_console() -> None:
        with stack.orm(), suppress(IllegalState):
            decide(approval, decision="deny", by="admin:bob")

    with ThreadPoolExecutor(PEOPLE + 1) as pool:
        presses = [
            pool.submit(press, stack, pressed(delivery, "approve" if number % 2 else "deny", user=by(number)))
            for number in range(PEOPLE)
        ]
        in_the_console()
        answers = [one.result().status for one in presses]

    assert answers == [200] * PEOPLE
    eventually(lambda: runs(stack)[0]["status"] == "succeeded")
    [row] = stack.query("SELECT decision, decided_by FROM runs_approval")
    assert runs(stack)[0]["result"] == ("approved" if row["decision"] == "approve" else "denied")
    assert len(stack.query("SELECT 1 FROM runs_auditentry WHERE kind = 'approval'")) == 1
    eventually(lambda: "chat.update" in paths(slack))
    eventually(lambda: not stack.query("SELECT 1 FROM runs_delivery WHERE status IN ('pending', 'sending', 'held')"))
    assert paths(slack).count("chat.postMessage") == 1
    assert paths(slack).count("chat.update") == 1
    [update] = [json.loads(one.body) for one in slack.posted if one.path.endswith("chat.update")]
    assert f"by {row['decided_by']}" in update["text"]


@pytest.mark.parametrize("point", ["before_decide_commit", "after_decide_commit"])
def test_a_web_process_that_dies_over_a_press_decides_it_once_or_not_at_all(
    stack: Stack, slack: HookServer, point: str
) -> None:
    stack.start("dispatcher")
    stack.start("worker")
    web = stack.start("web", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"})
    mention(stack)
    delivery = posted(stack)

    with pytest.raises(OSError):  # the connection ends without an answer
        press(stack, pressed(delivery))
    web.kill()
    stack.start("web")
    press(stack, pressed(delivery))

    eventually(lambda: runs(stack)[0] == {"status": "succeeded", "result": "approved"})
    assert len(stack.query("SELECT 1 FROM runs_auditentry WHERE kind = 'approval'")) == 1
    eventually(lambda: paths(slack).count("chat.update") == 1)


def test_a_decision_counts_once_while_the_worker_that_goes_on_is_killed(stack: Stack, slack: HookServer) -> None:
    stack.start("web")
    stack.start("dispatcher")
    worker = stack.start("worker", env={"WAKEFUL_FAILPOINTS": "butler_has_got_a_decision=sleep:60"})
    mention(stack)
    delivery = posted(stack)

    press(stack, pressed(delivery))
    eventually(lambda: runs(stack)[0]["status"] == "running")
    worker.kill()
    press(stack, pressed(delivery, "deny", user=by(2)))
    stack.start("worker")

    eventually(lambda: runs(stack)[0] == {"status": "succeeded", "result": "approved"})
    [row] = stack.query("SELECT decision, decided_by FROM runs_approval")
    assert row == {"decision": "approve", "decided_by": "slack:person-1"}
    assert stack.query("SELECT count(*) AS steps FROM runs_step WHERE key = 'pay'")[0]["steps"] == 1
    eventually(lambda: paths(slack).count("chat.update") == 1)


@pytest.mark.parametrize(
    ("point", "times"), [("after_delivery_claim", 1), ("after_delivery", 2), ("before_plan_commit", 2)]
)
def test_a_dispatcher_that_dies_over_the_change_of_the_message_changes_it_to_the_same(
    stack: Stack, slack: HookServer, point: str, times: int
) -> None:
    stack.start("web")
    stack.start("worker")
    first = stack.start("dispatcher")
    mention(stack)
    delivery = posted(stack)
    first.kill()
    press(stack, pressed(delivery))
    if point == "before_plan_commit":
        mention(stack, "And me")  # it dies over the request of this one
    assert stack.start("dispatcher", env={"WAKEFUL_FAILPOINTS": f"{point}=kill"}).wait() == -9
    stack.query("UPDATE runs_delivery SET due_at = now() WHERE status = 'sending' RETURNING id")

    stack.start("dispatcher")

    eventually(lambda: stack.query("SELECT 1 FROM runs_delivery WHERE channel = 'slack-outcome' AND status = 'sent'"))
    updates = [json.loads(one.body) for one in slack.posted if one.path.endswith("chat.update")]
    assert len(updates) <= times
    assert len({update["text"] for update in updates}) == 1
    assert "Approved by slack:person-1" in updates[0]["text"]
