import hmac
import json
from typing import Any

import pytest

from tests.support.deliveries import NOW, take
from triggers.sources.webhooks.proof import Rejected

SECRET = "a secret of the integration"
BODY = (
    '{"action":"created","actor":{"id":"sentry","name":"Sentry","type":"application"},"data":{"issue":{"id":"1170820242",'
    '"shortId":"IPE-1","title":"Error: naïve","status":"unresolved"}},"installation":{"uuid":"a8e5d37a-696c-4c54-adb5-b3f28d64c7de"}}'
).encode()
# Computed by the JavaScript of Sentry's documentation, "Verifying the Signature".
SIGNATURE = "6f4e21c25a87e43282e5a3abe54b1d314fee5a4c60f6f3e2efedd3f8152d6855"
HEADERS = {
    "Request-ID": "9a3b1c",
    "Sentry-Hook-Resource": "issue",
    "Sentry-Hook-Timestamp": str(int(NOW.timestamp())),
    "Sentry-Hook-Signature": SIGNATURE,
}


def signed_request(data: Any, resource: str) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(data).encode()
    signature = hmac.new(SECRET.encode(), body, "sha256").hexdigest()
    return body, HEADERS | {"Sentry-Hook-Resource": resource, "Sentry-Hook-Signature": signature}


def test_a_delivery_signed_as_sentry_documents_is_accepted_and_described() -> None:
    event = take("sentry", BODY, HEADERS, SECRET).event

    assert (event.type, event.subject, event.time) == ("issue.created", "IPE-1", NOW)
    assert event.data["data"]["issue"]["title"] == "Error: naïve"
    assert event.headers["sentry-hook-signature"] == "[redacted]"


@pytest.mark.parametrize(
    ("resource", "data", "type_", "subject"),
    [
        ("event_alert", {"action": "triggered", "data": {"event": {"issue_id": "7"}}}, "event_alert.triggered", "7"),
        ("metric_alert", {"action": "critical", "data": {"metric_alert": {"id": "5"}}}, "metric_alert.critical", "5"),
        ("comment", {"action": "updated", "data": {"issue_id": 9}}, "comment.updated", "9"),
        ("installation", {"action": "deleted"}, "installation.deleted", ""),
        ("error", [], "error", ""),
    ],
)
def test_events_are_named_by_resource_and_action(resource: str, data: Any, type_: str, subject: str) -> None:
    event = take("sentry", *signed_request(data, resource), SECRET).event

    assert (event.type, event.subject) == (type_, subject)


def test_a_retry_is_the_same_event_though_it_has_another_request_id() -> None:
    retried = HEADERS | {"Request-ID": "0d4e2f", "Sentry-Hook-Timestamp": "1763640300"}

    first, again = (take("sentry", BODY, headers, SECRET).event for headers in (HEADERS, retried))

    assert first.ce_id == again.ce_id


def test_with_identity_request_each_request_is_an_event() -> None:
    event = take("sentry", BODY, HEADERS, SECRET, settings={"identity": "request"}).event

    assert event.ce_id == "9a3b1c"


def test_a_delivery_without_its_resource_is_refused() -> None:
    with pytest.raises(Rejected, match="sentry-hook-resource is missing"):
        take("sentry", BODY, HEADERS | {"Sentry-Hook-Resource": ""}, SECRET)
