import hashlib
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from twilio.request_validator import RequestValidator

from tests.support.deliveries import NOW, delivery, secrets
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.receive import Receipt, cleaned, receive
from triggers.sources.webhooks.scheme import schemes

TOKEN = "12345"
ADDRESS = "https://mycompany.com/myapp.php?foo=1&bar=2"
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
CALL = {
    "CallSid": "CA1234567890ABCDE",
    "Caller": "+12349013030",
    "Digits": "1234",
    "From": "+12349013030",
    "To": "+18005551212",
}
RECEIVED = {
    "MessageSid": "SM1f0e8ae6ade43cb3c0ce4525424e404f",
    "SmsStatus": "received",
    "Body": "Où? +1 & 2=3",
    "NumMedia": "0",
}


def receipt_of(body: bytes, headers: dict[str, str], address: str = ADDRESS) -> Receipt:
    received = receive(*cleaned("twilio", {"address": address}), secrets(TOKEN), delivery(body, headers, NOW))
    assert isinstance(received, Receipt)
    return received


def as_form(fields: dict[str, str], address: str = ADDRESS, **headers: str) -> tuple[bytes, dict[str, str]]:
    """A request as Twilio's SDK signs it."""
    signature = RequestValidator(TOKEN).compute_signature(address, fields)
    return urlencode(fields).encode(), {**FORM, "X-Twilio-Signature": signature, **headers}


def test_the_example_of_twilios_documentation_is_accepted() -> None:
    """twilio.com/docs/usage/webhooks/webhooks-security"""
    headers = FORM | {"X-Twilio-Signature": "0/KCTR6DLpKmkAf8muzZqo1nDgQ="}

    event = receipt_of(urlencode(CALL).encode(), headers).event

    assert (event.subject, event.data) == ("CA1234567890ABCDE", CALL)
    assert event.headers["x-twilio-signature"] == "[redacted]"


def test_a_message_signed_by_twilios_sdk_is_accepted_and_described() -> None:
    event = receipt_of(*as_form(RECEIVED, **{"I-Twilio-Idempotency-Token": "8e4a"})).event

    assert (event.ce_id, event.type, event.subject) == ("8e4a", "message.received", RECEIVED["MessageSid"])
    assert event.data["Body"] == "Où? +1 & 2=3"


@pytest.mark.parametrize(
    ("fields", "type_"),
    [
        ({"MessageSid": "SM1", "MessageStatus": "delivered", "SmsStatus": "delivered"}, "message.delivered"),
        ({"CallSid": "CA1", "CallStatus": "no-answer"}, "call.no-answer"),
        ({"CallSid": "CA1", "RecordingSid": "RE1", "RecordingStatus": "completed"}, "recording.completed"),
        ({"EventType": "onMessageAdded", "ConversationSid": "CH1"}, "onMessageAdded"),
        ({"AccountSid": "AC1"}, "webhook.received"),
    ],
)
def test_events_are_named_by_resource_and_status(fields: dict[str, str], type_: str) -> None:
    assert receipt_of(*as_form(fields)).event.type == type_


def test_without_a_token_of_idempotency_a_retry_is_the_same_event() -> None:
    ids = {receipt_of(*as_form(RECEIVED)).event.ce_id for _ in range(2)}

    assert len(ids) == 1


@pytest.mark.parametrize("seen", [ADDRESS, f"{ADDRESS}&bodySHA256="])
def test_a_json_body_is_proved_by_its_hash_in_the_address(seen: str) -> None:
    body = json.dumps([{"type": "com.twilio.messaging.message.sent", "id": "EZ1"}]).encode()
    digest = hashlib.sha256(body).hexdigest()
    url = f"{ADDRESS}&bodySHA256={digest}"
    headers = {
        "Content-Type": "application/json",
        "X-Twilio-Signature": RequestValidator(TOKEN).compute_signature(url, {}),
    }
    assert RequestValidator(TOKEN).validate(url, body.decode(), headers["X-Twilio-Signature"])

    address = seen + digest if seen.endswith("=") else seen

    assert receipt_of(body, headers, address).event.type == "com.twilio.messaging.message.sent"
    with pytest.raises(Rejected):
        receipt_of(body + b" ", headers, address)


@pytest.mark.parametrize(
    ("configured", "signed"),
    [
        ("https://example.com/hooks/sms/", "https://example.com:443/hooks/sms/"),
        ("https://example.com:443/hooks/sms/", "https://example.com/hooks/sms/"),
        ("https://example.com:8443/hooks/sms/", "https://example.com/hooks/sms/"),
        ("http://example.com/hooks/sms/", "http://example.com:80/hooks/sms/"),
        ("https://example.com/hooks/sms/#rc=2&rp=all", "https://example.com/hooks/sms/"),
    ],
)
def test_the_port_and_the_fragment_do_not_count(configured: str, signed: str) -> None:
    assert receipt_of(*as_form(RECEIVED, signed), configured).secret


def test_the_address_is_signed() -> None:
    with pytest.raises(Rejected):
        receipt_of(*as_form(RECEIVED, "https://mycompany.com/myapp.php?foo=1&bar=3"))


def test_a_signature_by_sha256_is_accepted_where_twilio_names_it() -> None:
    signature = RequestValidator(TOKEN).compute_signature(ADDRESS, RECEIVED, "HMAC_SHA256")
    body, headers = as_form(RECEIVED, **{"X-Twilio-Signature": signature})
    name = "X-Twilio-Webhooks-Signature-Settings"

    assert receipt_of(body, headers | {name: "key=webhooks_sharedkey_1,algorithm=HMAC_SHA256"}).secret
    for settings in ("", "algorithm=HMAC_SHA1", "algorithm=MD5", "algorithm="):
        with pytest.raises(Rejected):
            receipt_of(body, headers | {name: settings})


@pytest.mark.parametrize("body", [b"\xff", b"a=%ff", b"&" * 2000])
def test_a_form_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(Rejected):
        receipt_of(body, as_form({})[1])


def test_a_form_with_too_many_escapes_is_refused_unread() -> None:
    with pytest.raises(Rejected, match="escaped"):
        receipt_of(b"a=" + b"%41" * 2_000_001, as_form({})[1])


@pytest.mark.parametrize(
    "address", ["example.com/hooks", "https://", "ftp://example.com/", "https://example.com:x/", "https://["]
)
def test_an_address_that_is_none_is_refused_with_a_reason(address: Any) -> None:
    with pytest.raises(InvalidSettings, match="address"):
        schemes()["twilio"].clean_settings({"address": address})


def test_twilio_is_answered_with_a_document_without_instructions() -> None:
    reply = schemes()["twilio"].accepted

    assert reply and (reply.status, reply.body, reply.content_type) == (200, b"<Response/>", "text/xml")
