import hmac
import json
from typing import Any

import pytest

from tests.support.deliveries import take
from triggers.sources.webhooks.proof import Rejected

SECRET = "It's a Secret to Everybody"


def signed_request(data: Any, event: str, **headers: str) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(data).encode()
    signature = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    return body, {"X-Event-Key": event, "X-Hub-Signature": f"sha256={signature}", **headers}


def test_the_example_of_bitbuckets_documentation_is_accepted() -> None:
    """support.atlassian.com, "Manage webhooks": the values to test a signature with."""
    headers = {
        "X-Event-Key": "repo:push",
        "X-Hub-Signature": "sha256=a4771c39fbe90f317c7824e83ddef3caae9cb3d976c214ace1f2937e133263c9",
    }

    event = take("bitbucket", b"Hello World!", headers, SECRET).event

    assert (event.type, event.body) == ("repo:push", b"Hello World!")
    assert event.headers["x-hub-signature"] == "[redacted]"


@pytest.mark.parametrize(
    ("event", "data", "subject"),
    [
        ("pullrequest:created", {"pullrequest": {"id": 7}, "repository": {"full_name": "team/app"}}, "team/app#7"),
        ("repo:push", {"push": {"changes": []}, "repository": {"full_name": "team/app"}}, "team/app"),
        ("pr:opened", {"pullRequest": {"id": 7}}, "#7"),
        ("repo:refs_changed", {"repository": {"slug": "app"}}, "app"),
    ],
)
def test_events_are_named_by_their_key(event: str, data: Any, subject: str) -> None:
    found = take("bitbucket", *signed_request(data, event), SECRET).event

    assert (found.type, found.subject) == (event, subject)


def test_the_id_is_that_of_the_request_in_cloud_and_in_data_center() -> None:
    ids = [
        take("bitbucket", *signed_request({}, "repo:push", **{name: "2b0e7c1a"}), SECRET).event.ce_id
        for name in ("X-Request-UUID", "X-Request-Id")
    ]

    assert ids == ["2b0e7c1a", "2b0e7c1a"]


def test_a_delivery_without_its_event_key_is_refused() -> None:
    body, headers = signed_request({}, "")

    with pytest.raises(Rejected, match="x-event-key is missing"):
        take("bitbucket", body, headers, SECRET)
