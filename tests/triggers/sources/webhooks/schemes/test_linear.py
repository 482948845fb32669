import hmac
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.deliveries import NOW, take
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

SECRET = "SECRET"
BODY = (
    b'{"action":"create","actor":{"id":"b5ea5f1f-8adc-4f52-b4bd-ab4e84cf51ba","type":"user","name":"Linear Orbit"},"data":{"id":'
    b'"2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9","createdAt":"2020-01-23T12:53:18.084Z","updatedAt":"2020-01-23T12:53:18.084Z",'
    b'"archivedAt":null,"body":"Indeed, I think this is definitely an improvement over the previous version.","edited":false,'
    b'"issueId":"539068e2-ae88-4d09-bd75-22eb4a59612f","userId":"aacdca22-6266-4c0a-ab3c-8fa70a26765c"},"type":"Comment","url":'
    b'"https://linear.app/issue/LIN-1778/foo-bar#comment-77217de3-fb52-4dad-bb9a-b356beb93de8","createdAt":'
    b'"2020-01-23T12:53:18.084Z","webhookTimestamp":1676056940508,"webhookId":"000042e3-d123-4980-b49f-8e140eef9329"}'
)
# Accepted by LinearWebhookClient of Linear's @linear/sdk 98.0.0 with this secret and body, at this time.
SIGNATURE = "d75bf0c296326850a655e2f4885030e3f54da6871b976b85d32efcf305214c1d"
SENT_AT = datetime.fromtimestamp(1676056940, UTC)
HEADERS = {
    "Linear-Delivery": "234d1a4e-b617-4388-90fe-adc3633d6b72",
    "Linear-Event": "Comment",
    "Linear-Signature": SIGNATURE,
}


def signed_request(data: Any) -> tuple[bytes, dict[str, str]]:
    body = json.dumps(data).encode()
    return body, HEADERS | {"Linear-Signature": hmac.new(SECRET.encode(), body, "sha256").hexdigest()}


def test_a_delivery_that_linears_sdk_accepts_is_accepted_and_described() -> None:
    event = take("linear", BODY, HEADERS, SECRET, at=SENT_AT).event

    assert (event.ce_id, event.type) == ("234d1a4e-b617-4388-90fe-adc3633d6b72", "Comment.create")
    assert event.subject == "2174add1-f7c8-44e3-bbf3-2d60b5ea8bc9"
    assert event.time == datetime(2020, 1, 23, 12, 53, 18, 84000, tzinfo=UTC)
    assert event.headers["linear-signature"] == "[redacted]"


def test_an_issue_is_named_by_its_identifier() -> None:
    data = {"type": "Issue", "action": "update", "data": {"id": "x", "identifier": "ENG-12"}}

    event = take("linear", *signed_request(data | {"webhookTimestamp": int(NOW.timestamp() * 1000)}), SECRET).event

    assert (event.type, event.subject) == ("Issue.update", "ENG-12")


@pytest.mark.parametrize("minutes", [-6, 6])
def test_the_time_in_the_body_counts(minutes: int) -> None:
    with pytest.raises(Rejected, match="off$"):
        take("linear", BODY, HEADERS, SECRET, at=SENT_AT + timedelta(minutes=minutes))


@pytest.mark.parametrize("time", [None, "", "soon", 1.5, [], -1, 0, 10**20, True])
def test_a_body_without_a_usable_time_is_refused(time: object) -> None:
    with pytest.raises(Rejected):
        take("linear", *signed_request({"webhookTimestamp": time}), SECRET)


def test_linear_is_answered_with_200_as_it_repeats_after_a_202() -> None:
    reply = schemes()["linear"].accepted

    assert reply and reply.status == 200
