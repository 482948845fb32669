"""CloudEvents over a webhook: the token, the handshake, and what of a message becomes the event."""

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.support.deliveries import delivery, secrets, take
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import cleaned, receive
from triggers.sources.webhooks.scheme import Reply

TOKEN = "a-token"
EVENT = {"specversion": "1.0", "id": "1", "source": "/shop", "type": "order.paid", "subject": "7", "data": {"n": 1}}
STRUCTURED = {"Content-Type": "application/cloudevents+json", "Authorization": f"Bearer {TOKEN}"}
BATCH = STRUCTURED | {"Content-Type": "application/cloudevents-batch+json"}


def handshake(origin: str, *, origins: str = "", per_minute: int = 0, method: str = "OPTIONS") -> Reply | None:
    request = replace(
        delivery(b"", {"WebHook-Request-Origin": origin, "WebHook-Request-Rate": "1000"}),
        method=method,
        per_minute=per_minute,
    )
    scheme, settings = cleaned("cloudevents", {"origins": origins})
    return scheme.handshake(request, secrets(TOKEN), settings)


@pytest.mark.parametrize(("origins", "rate"), [("", "*"), ("other.example Events.example.com", "*")])
def test_an_allowed_origin_gets_its_permission(origins: str, rate: str) -> None:
    reply = handshake("events.example.com", origins=origins)

    assert reply and reply.status == 200
    assert reply.headers["WebHook-Allowed-Origin"] == "events.example.com"
    assert reply.headers["WebHook-Allowed-Rate"] == rate


def test_the_rate_is_the_limit_of_the_source() -> None:
    reply = handshake("events.example.com", per_minute=120)

    assert reply and reply.headers["WebHook-Allowed-Rate"] == "120"


@pytest.mark.parametrize("origin", ["stranger.example", "a b", "x\r\nSet-Cookie: a", "ÿ", "*", "h" * 300])
def test_another_origin_gets_none(origin: str) -> None:
    with pytest.raises(Rejected):
        handshake(origin, origins="events.example.com")


def test_a_request_without_an_origin_is_no_handshake() -> None:
    assert handshake("") is None
    assert handshake("events.example.com", method="GET") is None


@pytest.mark.parametrize(
    ("body", "headers"),
    [
        (json.dumps(EVENT).encode(), STRUCTURED),
        (json.dumps([EVENT]).encode(), BATCH),
        (
            b'{"n": 1}',
            {
                "ce-specversion": "1.0", "ce-id": "1", "ce-source": "/shop", "ce-type": "order.paid", "ce-subject": "7",
                "Content-Type": "application/json", "Authorization": f"bearer {TOKEN}",
            },
        ),
    ],
)  # fmt: skip
def test_an_event_keeps_its_source_id_and_type(body: bytes, headers: Mapping[str, str]) -> None:
    event = take("cloudevents", body, headers, TOKEN).event

    assert (event.ce_source, event.ce_id, event.type, event.subject) == ("/shop", "1", "order.paid", "7")
    assert (event.data, event.data_error) == ({"n": 1}, "")


@pytest.mark.parametrize(
    ("body", "headers", "why"),
    [
        (b"{", STRUCTURED, "body"),
        (json.dumps(EVENT | {"specversion": "0.3"}).encode(), STRUCTURED, "specversion"),
        (json.dumps([EVENT, EVENT | {"id": "2"}]).encode(), BATCH, "a batch of 2 events"),
        (b"[]", BATCH, "a batch of 0 events"),
        (b"{}", STRUCTURED | {"Content-Type": "application/json"}, "Send a CloudEvent 1.0"),
    ],
)
def test_a_body_that_is_no_event_is_kept_raw_with_the_reason(body: bytes, headers: Mapping[str, str], why: str) -> None:
    event = take("cloudevents", body, headers, TOKEN).event

    assert (event.type, event.data, event.body) == ("webhook.received", None, body)
    assert event.data_error.startswith("kept raw: ") and why in event.data_error


@pytest.mark.parametrize(
    ("authorization", "query", "is_accepted"),
    [
        (f"Bearer {TOKEN}", "", True),
        ("", f"?access_token={TOKEN}", True),
        ("Bearer other", f"?access_token={TOKEN}", False),
        ("", "?access_token=other", False),
        ("", f"?access_token={TOKEN}&access_token=other", False),
        ("", "?access_token=", False),
        (f"Basic {TOKEN}", "", False),
    ],
)
def test_the_token_proves_a_delivery(authorization: str, query: str, is_accepted: bool) -> None:
    headers = {
        "Content-Type": STRUCTURED["Content-Type"],
        **({"Authorization": authorization} if authorization else {}),
    }
    request = replace(
        delivery(json.dumps(EVENT).encode(), headers), url=f"https://wakeful.example.com/hooks/test/{query}"
    )

    if is_accepted:
        assert receive(*cleaned("cloudevents", {}), secrets(TOKEN), request)
    else:
        with pytest.raises(Rejected):
            receive(*cleaned("cloudevents", {}), secrets(TOKEN), request)
