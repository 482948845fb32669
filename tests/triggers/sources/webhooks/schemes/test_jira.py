import hmac
import json
from typing import Any

import pytest

from tests.support.deliveries import NOW, take

SECRET = "It's a Secret to Everybody"


def signed_request(data: Any, **headers: str) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(data).encode()
    signature = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    return body, {"X-Hub-Signature": f"sha256={signature}", **headers}


def test_the_example_of_jiras_documentation_is_accepted() -> None:
    """developer.atlassian.com, "Webhooks": the values to test a signature with."""
    headers = {
        "X-Atlassian-Webhook-Identifier": "d-1",
        "X-Hub-Signature": "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9",
    }

    event = take("jira", b"Hello World!", headers, SECRET).event

    assert (event.ce_id, event.body) == ("d-1", b"Hello World!")
    assert event.headers["x-hub-signature"] == "[redacted]"


@pytest.mark.parametrize(
    ("data", "subject"),
    [
        ({"webhookEvent": "jira:issue_created", "issue": {"key": "TEST-12"}}, "TEST-12"),
        ({"webhookEvent": "comment_created", "issue": {"key": "TEST-12"}, "comment": {"id": "1"}}, "TEST-12"),
        ({"webhookEvent": "sprint_started", "sprint": {"id": 4}}, "4"),
        ({"webhookEvent": "project_created", "project": {"key": "TEST"}}, "TEST"),
    ],
)
def test_events_are_named_as_jira_names_them(data: dict[str, Any], subject: str) -> None:
    event = take("jira", *signed_request(data | {"timestamp": int(NOW.timestamp()) * 1000}), SECRET).event

    assert (event.type, event.subject, event.time) == (data["webhookEvent"], subject, NOW)


def test_a_retry_is_the_same_event() -> None:
    body, headers = signed_request({"webhookEvent": "jira:issue_deleted"}, **{"X-Atlassian-Webhook-Identifier": "d-2"})

    first = take("jira", body, headers, SECRET).event
    retried = take("jira", body, headers | {"X-Atlassian-Webhook-Retry": "2"}, SECRET).event

    assert (first.ce_id, retried.ce_id) == ("d-2", "d-2")


def test_without_an_identifier_equal_bodies_are_one_event() -> None:
    """Older Data Centers send none; their body has a timestamp in milliseconds."""
    ids = [take("jira", *signed_request({"timestamp": at}), SECRET).event.ce_id for at in (1, 1, 2)]

    assert ids[0] == ids[1] != ids[2]
