import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given
from hypothesis import strategies as st

from runs.api.strict_json import is_storable, require_storable
from tests.support.deliveries import NOW, take
from tests.support.forms import multipart
from tests.support.rsa_keys import OURS, rsa_key
from triggers.accept import Incoming
from triggers.sources.attachments import attachments_in_body
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.scheme import schemes

SIGNATURE, TIME = "X-Twilio-Email-Event-Webhook-Signature", "X-Twilio-Email-Event-Webhook-Timestamp"
KEY = ec.generate_private_key(ec.SECP256R1())
SECONDS = str(int(NOW.timestamp()))
BOUNCE: dict[str, Any] = {
    "email": "ada@example.com",
    "event": "bounce",
    "sg_event_id": "Ym91bmNlLTEwOTk0OTE5",
    "sg_message_id": "LRzXl_NHStOGhQ4kofSm_A.filterdrecv",
    "timestamp": 1795176000,
}
OPENED: dict[str, Any] = {**BOUNCE, "event": "open", "sg_event_id": "b3Blbi0x"}
MAIL = b"""From: Ada <Ada@Example.com>\r
To: support@agents.example.com\r
Subject: =?utf-8?q?Gr=C3=BC=C3=9Fe?=\r
Message-ID: <1@example.com>\r
Date: Fri, 20 Nov 2026 11:58:00 +0000\r
\r
Please call me back.\r
"""


def public(key: Any) -> str:
    encoded = key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(encoded).decode()


def proven(body: bytes, seconds: str = SECONDS, key: ec.EllipticCurvePrivateKey = KEY) -> dict[str, str]:
    signature = key.sign(seconds.encode() + body, ec.ECDSA(hashes.SHA256()))
    return {SIGNATURE: base64.b64encode(signature).decode(), TIME: seconds}


def body_of(*events: dict[str, Any]) -> bytes:
    return json.dumps(events).encode() + b"\r\n"


def event_of(body: bytes, headers: dict[str, str] | None = None, at: datetime = NOW) -> Incoming:
    seconds = str(int(at.timestamp()))
    return take("sendgrid", body, (headers or {}) | proven(body, seconds), public(KEY), at=at).event


# --- Signatures ---


def test_the_event_of_the_official_python_sdk_is_accepted() -> None:
    """Key, signature, timestamp and payload of test_eventwebhook.py in sendgrid/sendgrid-python."""
    key = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe62gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g=="
    signature = "MEUCIGHQVtGj+Y3LkG9fLcxf3qfI10QysgDWmMOVmxG0u6ZUAiEAyBiXDWzM+uOe5W0JuG+luQAbPIqHh89M15TluLtEZtM="
    event = {
        "email": "hello@world.com",
        "event": "dropped",
        "reason": "Bounced Address",
        "sg_event_id": "ZHJvcC0xMDk5NDkxOS1MUnpYbF9OSFN0T0doUTRrb2ZTbV9BLTA",
        "sg_message_id": "LRzXl_NHStOGhQ4kofSm_A.filterdrecv-p3mdw1-756b745b58-kmzbl-18-5F5FC76C-9.0",
        "smtp-id": "<LRzXl_NHStOGhQ4kofSm_A@ismtpd0039p1iad1.sendgrid.net>",
        "timestamp": 1600112492,
    }
    body = json.dumps([event], sort_keys=True, separators=(",", ":")).encode() + b"\r\n"
    headers = {SIGNATURE: signature, TIME: "1600112502"}
    at = datetime.fromtimestamp(1600112502, UTC)

    assert take("sendgrid", body, headers, key, at=at).event.type == "mail.dropped"
    for wrong_body, wrong_headers in [(body[:-2], headers), (body, headers | {TIME: "1600112503"})]:
        with pytest.raises(Rejected, match="no live secret matches"):
            take("sendgrid", wrong_body, wrong_headers, key, at=at)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {SIGNATURE: ""},
        {SIGNATURE: "%%%"},
        {SIGNATURE: "ÿ"},
        {SIGNATURE: base64.b64encode(b"no DER").decode()},
        {SIGNATURE: proven(body_of(BOUNCE))[SIGNATURE] + ", " + proven(body_of(BOUNCE))[SIGNATURE]},
        proven(body_of(BOUNCE), key=ec.generate_private_key(ec.SECP256R1())),
        proven(body_of(BOUNCE)[:-1]),
        proven(body_of(BOUNCE), str(int(SECONDS) + 301)),
        proven(body_of(BOUNCE), str(int(SECONDS) - 301 - 3 * 86_400)),
        proven(body_of(BOUNCE), f"{SECONDS}.0"),
        {TIME: f"{SECONDS}, {SECONDS}"},
    ],
)
def test_a_wrong_signature_or_time_is_refused(headers: dict[str, str]) -> None:
    with pytest.raises(Rejected):
        take("sendgrid", body_of(BOUNCE), {TIME: SECONDS} | headers, public(KEY))


def test_a_secret_that_is_no_public_key_proves_nothing() -> None:
    body = body_of(BOUNCE)

    for secret in ("", "x", public(rsa_key(OURS))):
        with pytest.raises(Rejected):
            take("sendgrid", body, proven(body), secret)


def test_a_public_key_may_be_pasted_with_its_frame() -> None:
    scheme, key = schemes()["sendgrid"], public(KEY)
    framed = f"-----BEGIN PUBLIC KEY-----\n{key[:64]}\n{key[64:]}\n-----END PUBLIC KEY-----\n"

    assert scheme.clean_secret(framed) == scheme.clean_secret(f" {key}\n") == key
    assert scheme.clean_secret(scheme.new_secret())


def test_another_key_is_refused_with_the_remedy() -> None:
    for secret in ("", "SG.xxxxx", public(rsa_key(OURS)), public(ec.generate_private_key(ec.SECP384R1()))):
        with pytest.raises(InvalidSettings, match="Verification Key"):
            schemes()["sendgrid"].clean_secret(secret)


# --- Events ---


def test_the_events_of_one_delivery_are_one_event() -> None:
    one, more = event_of(body_of(BOUNCE)), event_of(body_of(BOUNCE, OPENED))

    assert (one.type, one.subject, one.ce_id) == ("mail.bounce", "ada@example.com", "Ym91bmNlLTEwOTk0OTE5")
    assert (more.type, more.subject, len(more.data)) == ("mail.events", "", 2)


def test_a_retry_is_the_same_event_although_it_is_signed_again() -> None:
    first = event_of(body_of(BOUNCE, OPENED))

    assert event_of(body_of(OPENED, BOUNCE), at=NOW + timedelta(hours=20)).ce_id == first.ce_id
    assert event_of(body_of(OPENED)).ce_id != first.ce_id


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b"[3]", b'[{"event": ["x"]}]', b'[{"sg_event_id": "a"}, {}]', b"{"]
)
def test_a_body_without_ids_is_named_by_its_bytes(body: bytes) -> None:
    event = event_of(body)

    assert event.ce_id == event_of(body).ce_id and event.ce_id.startswith("sha256:")
    assert event.type == "mail.events"


# --- Inbound mail ---


def inbound(**fields: str | bytes) -> tuple[bytes, dict[str, str]]:
    envelope = json.dumps({"to": ["support@agents.example.com"], "from": "ada@example.com"})
    return multipart({"envelope": envelope, "SPF": "pass", "dkim": "{@example.com : pass}", **fields})


def test_raw_mail_is_read_like_mail_from_anywhere_else() -> None:
    body, headers = inbound(email=MAIL)

    event = event_of(body, headers)

    assert (event.type, event.subject) == ("mail.received", "ada@example.com")
    assert (event.data["subject"], event.data["text"], event.data["message_id"]) == (
        "Grüße",
        "Please call me back.",
        "<1@example.com>",
    )
    assert event.data["envelope"]["to"] == ["support@agents.example.com"]
    assert event.data["checked"] == {"SPF": "pass", "dkim": "{@example.com : pass}"}
    assert event.time == datetime(2026, 11, 20, 11, 58, tzinfo=UTC)


def test_parsed_mail_has_the_same_fields() -> None:
    head, _, text = MAIL.decode().partition("\r\n\r\n")
    raw = event_of(*inbound(email=MAIL))
    fields: dict[str, str | bytes] = {
        "headers": head + "\r\nContent-Type: multipart/mixed; boundary=b",
        "text": text,
        "charsets": '{"text": "utf-8"}',
    }

    parsed = event_of(*inbound(**fields))

    assert parsed.data == raw.data
    assert parsed.ce_id == raw.ce_id


def test_parsed_mail_is_read_in_the_charset_of_each_field_and_with_its_files() -> None:
    fields: dict[str, str | bytes] = {
        "text": "Grüße".encode("latin-1"),
        "html": "<p>x</p>",
        "charsets": '{"text": "iso-8859-1"}',
        "headers": "From: a@b.c",
    }
    body, headers = multipart(
        fields, ("../offer.pdf", "application/pdf", b"%PDF"), ("large.bin", "application/zip", b"0" * 70_000)
    )

    event = event_of(body, headers)
    data = event.data

    files = attachments_in_body(event.body or b"", event.headers)
    assert [(one.name, one.content) for one in files] == [("offer.pdf", b"%PDF"), ("large.bin", b"0" * 70_000)]
    assert data["text"] == "Grüße"
    assert [(one["name"], one["size"], "content" in one) for one in data["attachments"]] == [
        ("offer.pdf", 4, True),
        ("large.bin", 70_000, False),
    ]


def test_the_same_mail_again_is_a_duplicate_and_to_another_address_is_not() -> None:
    other = json.dumps({"to": ["sales@agents.example.com"], "from": "ada@example.com"})

    first, again, elsewhere = (
        event_of(*inbound(email=MAIL, **more)) for more in ({}, {"SPF": "fail"}, {"envelope": other})
    )

    assert first.ce_id == again.ce_id != elsewhere.ce_id


def test_a_form_that_cannot_be_read_is_kept_raw() -> None:
    event = event_of(b"x", {"Content-Type": "multipart/form-data; boundary=ü"})

    assert (event.type, event.data, event.data_error[:9]) == ("mail.received", None, "kept raw:")


@given(
    st.dictionaries(
        st.sampled_from(["email", "headers", "text", "html", "charsets", "envelope", "SPF"]), st.binary(max_size=80)
    )
)
def test_whatever_strangers_write_can_be_stored(fields: dict[str, bytes]) -> None:
    files = [(f"a{value[:9].decode('latin-1')}".replace('"', ""), "t", value) for value in fields.values()]
    body, headers = multipart(fields, *files)

    event = event_of(body, headers)

    require_storable(event.data)
    assert is_storable(event.subject) and event.ce_id
