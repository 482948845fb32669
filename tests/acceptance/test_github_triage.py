"""Deliveries as others make them, all the way through the running stack to what an agent makes of them."""

import hashlib
import hmac
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from cloudevents.core.bindings.http import HTTPMessage, to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent
from standardwebhooks import Webhook

from tests.support.deliveries import recorded
from tests.support.stack import SHOP, Answer, Stack, StackMaker, eventually
from triggers.api.tokens import ALL, ensure_token
from triggers.models import Source
from triggers.sources.secrets import rotate

ENDED = """
SELECT status, result, error FROM runs_run WHERE event_ids = ARRAY[%s::uuid] AND agent = %s AND finished_at IS NOT NULL
"""


@pytest.fixture(scope="module")
def running(make_shared_stack: StackMaker) -> Stack:
    return make_shared_stack(env={"WAKEFUL_DEMO": "1", **SHOP}, agents=True).up(beat=False)


def new_source(stack: Stack, slug: str, kind: str) -> str:
    """A source of the stack; its secret."""
    with stack.orm():
        return rotate(Source.objects.create(slug=slug, kind=kind), by="test")


def result_of(agent: str, stack: Stack, answer: Answer) -> Any:
    """What the agent's run made of an accepted event."""
    assert answer.status == 202, answer.body
    [run] = eventually(lambda: stack.query(ENDED, answer.json()["event"], agent))
    assert run["status"] == "succeeded", run["error"]
    return run["result"]


@pytest.mark.chaos
def test_a_github_issue_signed_by_github_is_triaged_and_counted(running: Stack) -> None:
    secret = new_source(running, "github", "github")
    body, headers = recorded("github/issues.opened.json")
    signature = f"sha256={hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()}"

    answer = running.request("POST", "/hooks/github/", body=body, headers={**headers, "X-Hub-Signature-256": signature})

    triaged = result_of("github-issue-triage", running, answer)
    assert (triaged["repository"], triaged["number"]) == ("lantern-works/tidewatch", 418)
    assert (triaged["labels"], triaged["priority"]) == (["crash", "bug"], "high")
    assert running.query("SELECT labels, priority FROM library_issuetriage") == [
        {"labels": ["crash", "bug"], "priority": "high"}
    ]
    counted = "SELECT value FROM agents_agentstate WHERE agent = 'triage-digest'"
    [digest] = eventually(lambda: running.query(counted))
    assert digest["value"] == {"issues": 1, "labels": {"crash": 1, "bug": 1}, "priorities": {"high": 1}}

    again = running.request("POST", "/hooks/github/", body=body, headers={**headers, "X-Hub-Signature-256": signature})
    assert (again.status, again.json()["event"]) == (200, answer.json()["event"])


@pytest.mark.chaos
def test_deliveries_made_with_the_reference_libraries_wake_an_agent(running: Stack) -> None:
    standard_webhook = deliver_standard_webhook(running)
    structured = deliver_cloudevent(running, to_structured_event)
    binary = deliver_cloudevent(running, to_binary_event)

    assert result_of("effect", running, standard_webhook) == {"data": {"type": "effect.paid", "amount": 3}}
    assert result_of("effect", running, structured) == {"data": {"parcel": "Zürich 7"}}
    assert result_of("effect", running, binary) == {"data": {"parcel": "Zürich 7"}}


def deliver_standard_webhook(stack: Stack) -> Answer:
    secret = new_source(stack, "partner", "standard_webhooks")
    body, now, message_id = json.dumps({"type": "effect.paid", "amount": 3}), datetime.now(UTC), f"msg_{uuid4().hex}"
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, now, body),
    }
    return stack.request("POST", "/hooks/partner/", body=body.encode(), headers=headers)


def deliver_cloudevent(stack: Stack, bind: Callable[..., HTTPMessage]) -> Answer:
    token = stack.env["WAKEFUL_API_TOKEN"]
    with stack.orm():
        ensure_token("partner", token, [ALL])
    attributes = {"specversion": "1.0", "id": str(uuid4()), "source": "/partner", "type": "effect.shipped"}
    message = bind(CloudEvent({**attributes, "datacontenttype": "application/json"}, {"parcel": "Zürich 7"}))
    headers = {**message.headers, "Authorization": f"Bearer {token}"}
    return stack.request("POST", "/api/v1/events/", body=message.body, headers=headers)
